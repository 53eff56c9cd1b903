"""For every rule about our own parts: a manifest that trips it, and the same one mended."""

from tests.lint.building import GONE, Case, case, changed, daemonset, deployment, env, exporter_env, tls_env


def ours(**variables: str) -> str:
    return deployment({"env": tls_env(**variables)})


def probe(**http_get: object) -> str:
    return deployment({"livenessProbe": {"httpGet": {"path": "/livez", "port": 9643, **http_get}}})


CONFIG_MAP = "kind: ConfigMap\ndata:\n  NUMA_EXTENDER_{}\n"
ON_HOST = {"hostNetwork": True}
LOOPBACK = {"readinessProbe": {"httpGet": {"host": "127.0.0.1", "path": "/readyz", "port": 9600}}}


def several(**changes: object) -> str:
    """A Deployment of two extenders that share their reports and one lease."""
    shared = {
        "NUMA_EXTENDER_TOPOLOGIES": "on",
        "NUMA_EXTENDER_LEASE": "on",
        "NUMA_EXTENDER_OWN_URL": "https://$(POD_IP):9643",
    }
    variables = {name: str(value) for name, value in changed(shared, dict(changes)).items()}
    return deployment({"env": tls_env(**variables)}, replicas=2)


OURS = {
    "setting-unknown": [
        case(ours(NUMA_EXTENDER_STRATEGIE="least-numa"), ours(NUMA_EXTENDER_STRATEGY="least-numa")),
        case(CONFIG_MAP.format("PROT: '1'"), CONFIG_MAP.format("PORT: '1'")),
    ],
    "setting-invalid": [
        case(ours(NUMA_EXTENDER_PORT="http"), ours(NUMA_EXTENDER_PORT="9600")),
        case(ours(NUMA_EXTENDER_STRATEGY="best"), deployment()),
        case(ours(NUMA_EXTENDER_KUBELET_SWITCHES="inside"), ours(NUMA_EXTENDER_KUBELET_SWITCHES="spread_by_topology")),
        case(CONFIG_MAP.format("UNKNOWN_NODES: replay"), CONFIG_MAP.format("UNKNOWN_NODES: refuse")),
        case(ours(NUMA_EXTENDER_LOOPBACK_SCOPES="schedule"), ours(NUMA_EXTENDER_LOOPBACK_SCOPES='["schedule"]')),
        case(ours(NUMA_EXTENDER_HOST="0.0.0.0"), ours(NUMA_EXTENDER_HOST="0.0.0.0", NUMA_EXTENDER_INSECURE="true")),
        case(deployment({"env": env(NUMA_EXTENDER_TLS_KEY_FILE="/k")}), deployment()),
    ],
    "keep-alive-short": [
        case(ours(NUMA_EXTENDER_KEEP_ALIVE_SECONDS="5"), ours(NUMA_EXTENDER_KEEP_ALIVE_SECONDS="91")),
    ],
    "insecure": [case(ours(NUMA_EXTENDER_INSECURE="true"), ours(NUMA_EXTENDER_INSECURE="false"))],
    "arguments-invalid": [
        case(deployment({"args": ["serve", "--prot", "1"]}), deployment({"args": ["serve", "--port", "9600"]})),
        case(deployment({"args": ["start"]}), deployment({"args": GONE})),
        case(deployment({"args": ["serve", "--log-level=loud"]}), deployment({"args": ["serve", "--log-level=info"]})),
        case(daemonset(args=["run", "--push"]), daemonset(args=["run", "--root", "/host"])),
        case(daemonset(env=exporter_env(NUMA_PUSH_URL=GONE)), daemonset(args=["run", "--dry-run"])),
        case(
            daemonset(env=exporter_env(NUMA_PUSH_URL=GONE, NUMA_NRT="no")),
            daemonset(env=exporter_env(NUMA_PUSH_URL=GONE, NUMA_NRT="true")),
        ),
        case(daemonset(env=exporter_env(NUMA_NRT="true")), daemonset(env=exporter_env(NUMA_NRT="false"))),
    ],
    "probe-unreachable": [
        case(probe(port=9600), probe()),
        case(deployment(LOOPBACK), deployment(LOOPBACK, ON_HOST)),
        case(
            daemonset(readinessProbe={"httpGet": {"path": "/readyz", "port": 9473}}),
            daemonset(
                readinessProbe={"httpGet": {"path": "/readyz", "port": 9473}},
                env=exporter_env(NUMA_LISTEN="0.0.0.0:9473"),
            ),
        ),
    ],
    "probe-port": [
        case(probe(port=8080), probe()),
        case(probe(port="metrics"), probe(port="https")),
        case(ours(NUMA_EXTENDER_TLS_PORT="9700"), deployment()),
        case(deployment({"env": []}), deployment()),
    ],
    "probe-path": [case(probe(path="/healthz"), probe())],
    "grace-period-short": [
        case(deployment(pod={"terminationGracePeriodSeconds": 10}), deployment()),
        case(ours(NUMA_EXTENDER_SHUTDOWN_SECONDS="60"), deployment()),
    ],
    "replicas-split-reports": [case(deployment(replicas=2), deployment(replicas=1))],
    "standby-refuses": [case(several(NUMA_EXTENDER_OWN_URL=GONE), several())],
    "standby-blocks-drain": [
        case(several(NUMA_EXTENDER_STANDBY_READY="false"), several(NUMA_EXTENDER_STANDBY_READY="true"))
    ],
    "cpu-limit": [
        case(
            deployment({"resources": {"limits": {"cpu": "1"}}}),
            deployment({"resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}}}),
        )
    ],
    "token-in-clear": [
        case(
            daemonset(env=exporter_env(NUMA_TOKEN_FILE="/t", NUMA_PUSH_URL="http://a.example.org")),
            daemonset(env=exporter_env(NUMA_TOKEN_FILE="/t")),
        )
    ],
    "push-in-clear": [case(daemonset(env=exporter_env(NUMA_PUSH_URL="http://a.example.org")), daemonset())],
    "push-to-loopback": [
        case(
            daemonset(env=exporter_env(NUMA_PUSH_URL="http://127.0.0.1:9600")),
            daemonset(ON_HOST, env=exporter_env(NUMA_PUSH_URL="http://127.0.0.1:9600")),
        ),
        case(daemonset(args=["run", "--push=http://localhost:1"]), daemonset()),
    ],
    "kubelet-not-asked": [
        case(daemonset(env=exporter_env(KUBELET_URL=GONE)), daemonset()),
        case(
            daemonset(env=exporter_env(KUBELET_URL=GONE)),
            daemonset(env=exporter_env(KUBELET_URL=GONE, KUBELET_VERSION="v1.36.0")),
        ),
    ],
    "kubelet-unproven": [
        case(daemonset(env=exporter_env(KUBELET_CA_FILE=GONE)), daemonset()),
        case(daemonset(env=exporter_env(KUBELET_PIN_FILE="/p")), daemonset()),
    ],
    "interval-makes-stale": [
        case(daemonset(env=exporter_env(NUMA_INTERVAL="120")), daemonset(env=exporter_env(NUMA_INTERVAL="40"))),
        Case(
            (daemonset(), ours(NUMA_EXTENDER_STALE_AFTER_SECONDS="20")),
            (daemonset(), ours(NUMA_EXTENDER_STALE_AFTER_SECONDS="90")),
        ),
    ],
    "state-file-mounted": [
        case(
            daemonset(volumeMounts=[{"name": "a", "mountPath": "/var/lib/kubelet/cpu_manager_state"}]),
            daemonset(),
        )
    ],
}
