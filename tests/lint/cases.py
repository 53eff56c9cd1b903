"""For every rule of the catalogue: documents that trip it, and the same ones mended."""

from dataclasses import dataclass

from tests.lint.building import (
    GONE,
    alert,
    daemonset,
    deployment,
    env,
    exporter_env,
    extender,
    foreign,
    host_scheduler,
    https,
    kubelet,
    scheduler,
    tls_env,
)

SERVICE = extender(urlPrefix="http://numa-extender.numa-extender.svc:9600/scheduler")


@dataclass(frozen=True)
class Case:
    bad: tuple[str, ...]
    good: tuple[str, ...]
    kube: int = 36
    kubelet: str = "v1.36.0"
    good_kube: int | None = None


def case(bad: str, good: str, **versions: int | str) -> Case:
    return Case((bad,), (good,), **versions)  # type: ignore[arg-type]


def _ours(**variables: str) -> str:
    return deployment({"env": tls_env(**variables)})


def _probe(**http_get: object) -> str:
    return deployment({"livenessProbe": {"httpGet": {"path": "/livez", "port": 9643, **http_get}}})


FILES = {
    "unreadable": [case("a: [", "a: []")],
    "duplicate-key": [case(scheduler() + "parallelism: 1\nparallelism: 2\n", scheduler() + "parallelism: 2\n")],
    "nothing-to-check": [case("urlPrefix: http://127.0.0.1\n", scheduler())],
}

SCHEDULER = {
    "scheduler-api-version": [
        case(scheduler(apiVersion="kubescheduler.config.k8s.io/v1beta3"), scheduler()),
        Case((scheduler(apiVersion="kubescheduler.config.k8s.io/v1beta3"),) * 1, (scheduler(),), kube=29),
        case(scheduler(apiVersion="v2"), scheduler(apiVersion="kubescheduler.config.k8s.io/v1beta3"), good_kube=28),
    ],
    "scheduler-policy-gone": [case("kind: Policy\nextenders: []\n", "kind: Policy\nrules: []\n")],
    "scheduler-unknown-field": [
        case(scheduler(percentageOfNodeToScore=100), scheduler()),
        case(scheduler(extender(nodeCacheEnabled=True)), scheduler()),
        case(scheduler(profiles=[{"name": "a"}]), scheduler(profiles=[{"schedulerName": "default-scheduler"}])),
        case(scheduler(leaderElection={"elect": True}), scheduler(leaderElection={"leaderElect": True})),
        case(scheduler(https(ca="x")), scheduler(https(caFile="x"))),
    ],
    "no-extender": [case(scheduler(extenders=[]), scheduler())],
    "profile-name-twice": [
        case(scheduler(profiles=[{}, {}]), scheduler(profiles=[{}, {"schedulerName": "b"}])),
    ],
    "profiles-share-extenders": [case(scheduler(profiles=[{}, {"schedulerName": "b"}]), scheduler(profiles=[{}]))],
    "lease-shared": [
        case(
            scheduler(profiles=[{"schedulerName": "numa"}]),
            scheduler(profiles=[{"schedulerName": "numa"}], leaderElection={"resourceName": "numa"}),
        ),
        case(
            scheduler(profiles=[{"schedulerName": "numa"}], leaderElection={"leaderElect": True}),
            scheduler(profiles=[{"schedulerName": "numa"}], leaderElection={"leaderElect": False}),
        ),
    ],
    "nodes-sampled": [
        case(scheduler(percentageOfNodesToScore=GONE), scheduler()),
        case(scheduler(percentageOfNodesToScore=0), scheduler()),
        case(
            scheduler(profiles=[{"percentageOfNodesToScore": 50}]),
            scheduler(percentageOfNodesToScore=50, profiles=[{"percentageOfNodesToScore": 100}]),
        ),
    ],
    "percentage-invalid": [
        case(scheduler(percentageOfNodesToScore=101), scheduler()),
        case(scheduler(percentageOfNodesToScore="100%"), scheduler()),
    ],
    "two-binders": [
        case(scheduler(extender(), foreign(bindVerb="bind")), scheduler(extender(), foreign())),
    ],
    "ignorable-order": [
        case(scheduler(foreign(ignorable=True), extender()), scheduler(extender(), foreign(ignorable=True))),
    ],
    "managed-resource-twice": [
        case(
            scheduler(*(foreign(managedResources=[{"name": "a.io/x"}]) for _ in "ab")),
            scheduler(foreign(managedResources=[{"name": "a.io/x"}]), foreign(managedResources=[{"name": "a.io/y"}])),
        )
    ],
}

EXTENDER = {
    "url-prefix": [
        case(scheduler(extender(urlPrefix=bad)), scheduler())
        for bad in ("127.0.0.1:9600/scheduler", "unix:///run/x", "http://", "http://h:99999", "http://h/?a=b", GONE)
    ],
    "tls-unverified": [
        case(scheduler(https()), scheduler(https(caFile="/ca"))),
        case(scheduler(https(insecure=False)), scheduler(https(caData="eA=="))),
        case(scheduler(https(insecure=True)), scheduler(extender(urlPrefix="https://a.example.org/scheduler"))),
    ],
    "https-flag-on-http": [case(scheduler(extender(enableHTTPS=True)), scheduler(extender(enableHTTPS=False)))],
    "ca-and-insecure": [case(scheduler(https(caFile="/ca", insecure=True)), scheduler(https(caFile="/ca")))],
    "client-cert-incomplete": [
        case(
            scheduler(https(caFile="/ca", certFile="/c")), scheduler(https(caFile="/ca", certFile="/c", keyFile="/k"))
        ),
        case(scheduler(https(caFile="/ca", keyData="eA==")), scheduler(https(caFile="/ca"))),
    ],
    "tls-config-on-http": [case(scheduler(extender(tlsConfig={"caFile": "/ca"})), scheduler(https(caFile="/ca")))],
    "plain-http": [
        case(scheduler(SERVICE), scheduler()),
        case(scheduler(SERVICE), scheduler(extender(urlPrefix="http://[::1]:9600/scheduler"))),
    ],
    "ca-read-once": [case(scheduler(https(caFile="/ca")), scheduler(https(caData="eA==")))],
    "node-cache-incapable": [
        case(scheduler(extender(nodeCacheCapable=GONE)), scheduler()),
        case(scheduler(extender(nodeCacheCapable=False)), scheduler(), kube=32),
    ],
    "timeout-unset": [
        case(scheduler(extender(httpTimeout=GONE)), scheduler()),
        case(scheduler(extender(httpTimeout="0s")), scheduler(extender(httpTimeout="1m0.5s"))),
    ],
    "timeout-invalid": [
        case(scheduler(extender(httpTimeout=bad)), scheduler()) for bad in (5, "5", "5 s", "-5s", "5sec", True)
    ],
    "timeout-below-deadline": [
        Case(
            (scheduler(extender(httpTimeout="2s", bindVerb=GONE)), _ours(NUMA_EXTENDER_FILTER_SECONDS="2")),
            (scheduler(extender(httpTimeout="2.1s", bindVerb=GONE)), _ours(NUMA_EXTENDER_FILTER_SECONDS="2")),
        ),
        Case((scheduler(extender(httpTimeout="2s")),), (scheduler(extender(httpTimeout="2s", bindVerb=GONE)),)),
        Case(
            (scheduler(extender(httpTimeout="5s")), _ours(NUMA_EXTENDER_BIND_SECONDS="2.5")),
            (scheduler(extender(httpTimeout="5s")), _ours(NUMA_EXTENDER_BIND_SECONDS="2")),
        ),
    ],
    "timeout-long": [case(scheduler(extender(httpTimeout="30s")), scheduler(extender(httpTimeout="10s")))],
    "weight-missing": [
        case(scheduler(extender(weight=GONE)), scheduler()),
        case(scheduler(extender(weight=0)), scheduler(extender(weight=0, prioritizeVerb=GONE))),
        case(scheduler(extender(weight=-1)), scheduler()),
    ],
    "weight-invalid": [case(scheduler(extender(weight=bad)), scheduler()) for bad in (1.0, "5", True)],
    "weight-unused": [case(scheduler(extender(prioritizeVerb=GONE)), scheduler())],
    "weight-dominates": [case(scheduler(extender(weight=13)), scheduler(extender(weight=12)))],
    "verb-slash": [
        case(scheduler(extender(filterVerb="/filter")), scheduler()),
        case(
            scheduler(extender(filterVerb="filter/")),
            scheduler(extender(urlPrefix="http://127.0.0.1:9600/", filterVerb="scheduler/filter")),
        ),
    ],
    "verb-no-route": [
        case(scheduler(extender(filterVerb="predicates")), scheduler()),
        case(scheduler(extender(urlPrefix="http://127.0.0.1:9600")), scheduler()),
        case(scheduler(extender(filterVerb="fit"), foreign()), scheduler(extender(), foreign())),
    ],
    "verb-wrong-route": [
        case(scheduler(extender(prioritizeVerb="filter")), scheduler()),
        case(scheduler(extender(prioritizeVerb="filter"), foreign()), scheduler(extender(), foreign())),
    ],
    "filter-missing": [case(scheduler(extender(filterVerb=GONE)), scheduler(extender(), foreign(filterVerb=GONE)))],
    "prioritize-missing": [case(scheduler(extender(prioritizeVerb=GONE)), scheduler())],
    "bind-missing": [case(scheduler(extender(bindVerb=GONE)), scheduler(extender(), foreign()))],
    "preempt-missing": [case(scheduler(extender(preemptVerb=GONE)), scheduler())],
    "managed-resource-native": [
        case(
            scheduler(foreign(managedResources=[{"name": bad}])),
            scheduler(foreign(managedResources=[{"name": "example.org/numa"}])),
        )
        for bad in ("cpu", "memory", "hugepages-2Mi", "kubernetes.io/x", "")
    ],
    "managed-resources-hide": [case(scheduler(extender(managedResources=[{"name": "a.io/x"}])), scheduler())],
    "ignored-by-scheduler": [
        case(
            scheduler(foreign(managedResources=[{"name": "a.io/x", "ignoredByScheduler": True}])),
            scheduler(foreign(managedResources=[{"name": "a.io/x"}])),
        )
    ],
    "service-name-on-host-network": [
        Case(
            (scheduler(SERVICE), host_scheduler("ClusterFirst")),
            (scheduler(SERVICE), host_scheduler("ClusterFirstWithHostNet")),
        ),
        Case((scheduler(SERVICE), host_scheduler("Default")), (scheduler(), host_scheduler("Default"))),
        Case((scheduler(SERVICE), host_scheduler("Default")), (scheduler(SERVICE),)),
    ],
    "ignorable-without-alert": [
        Case((scheduler(extender(ignorable=True)),), (scheduler(),)),
        Case(
            (scheduler(extender(ignorable=True)), alert('up{job="node"} == 0')),
            (scheduler(extender(ignorable=True)), alert('absent(up{job="numa-extender"} == 1)')),
        ),
    ],
    "ignorable-binder": [case(scheduler(extender(ignorable=True)), scheduler(extender(ignorable=True, bindVerb=GONE)))],
}

PERCENT = {"memory.available": "5%"}
KUBELET = {
    "kubelet-api-version": [case(kubelet(apiVersion="v1"), kubelet())],
    "kubelet-field-misspelled": [
        case(kubelet(topologyManagerPolicy=GONE, topologymanagerpolicy="restricted"), kubelet()),
        case(kubelet(cpuManagerPolicyOption={}), kubelet(cpuManagerPolicyOptions={}, containerLogMaxSize="1Mi")),
        case(kubelet(reservedMemorys=[], reservedMemory=GONE), kubelet(evictionSoft={}, systemReservedCgroup="/a")),
    ],
    "kubelet-value-invalid": [
        case(kubelet(systemReserved={"memory": "1 Gi"}), kubelet()),
        case(kubelet(reservedSystemCPUs="a-b"), kubelet(reservedSystemCPUs="0-1,300")),
        case(kubelet(featureGates={"MemoryManager": "yes"}), kubelet(featureGates={"MemoryManager": True})),
        case(kubelet(reservedMemory=[{"numaNode": 0, "limits": {"memory": "x"}}]), kubelet()),
    ],
    "kubelet-does-not-start": [
        case(kubelet(reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}]), kubelet()),
        case(kubelet(systemReserved={"cpu": GONE}, kubeReserved={"cpu": GONE}), kubelet(kubeReserved={"cpu": GONE})),
        case(kubelet(topologyManagerPolicy="single"), kubelet()),
        case(
            kubelet(cpuManagerPolicyOptions={"align-by-socket": "true"}, topologyManagerPolicy="restricted"),
            kubelet(
                cpuManagerPolicyOptions={"align-by-socket": "true"},
                topologyManagerPolicy="restricted",
                featureGates={"CPUManagerPolicyAlphaOptions": True},
            ),
        ),
        case(kubelet(topologyManagerPolicyOptions={"max-allowable-numa-nodes": "4"}), kubelet()),
        Case(
            (kubelet(topologyManagerPolicyOptions={"max-allowable-numa-nodes": "16"}),),
            (kubelet(),),
            kubelet="v1.30.4",
        ),
        case(
            kubelet(cpuManagerPolicy="none", cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
            kubelet(cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
        ),
        case(
            kubelet(reservedMemory=[{"numaNode": 0, "limits": {"memory": "2Gi", "hugepages-1Gi": "1Gi"}}]),
            kubelet(reservedMemory=[{"numaNode": 0, "limits": {"memory": "2Gi"}}]),
        ),
    ],
    "kubelet-newer-than-known": [Case((kubelet(),), (scheduler(),), kubelet="v1.99.0")],
    "topology-without-static-cpu": [
        case(kubelet(cpuManagerPolicy="none"), kubelet(cpuManagerPolicy="none", topologyManagerPolicy="none")),
    ],
    "static-cpu-without-topology": [case(kubelet(topologyManagerPolicy="none"), kubelet())],
    "prefer-closest-no-effect": [
        case(
            kubelet(topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"}),
            kubelet(
                topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"}, topologyManagerPolicy="restricted"
            ),
        )
    ],
    "topology-options-ignored": [
        case(
            kubelet(topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"}, topologyManagerPolicy="none"),
            kubelet(topologyManagerPolicy="none"),
        )
    ],
    "memory-without-topology": [case(kubelet(topologyManagerPolicy="none"), kubelet())],
    "memory-groups": [
        case(kubelet(topologyManagerPolicy="restricted"), kubelet()),
        case(
            kubelet(topologyManagerPolicy="best-effort"),
            kubelet(topologyManagerPolicy="restricted", memoryManagerPolicy="None", reservedMemory=GONE),
        ),
    ],
    "best-effort-refuses": [
        case(kubelet(topologyManagerPolicy="best-effort"), kubelet(topologyManagerPolicy="restricted")),
    ],
    "full-pcpus-only": [
        case(
            kubelet(cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
            kubelet(cpuManagerPolicyOptions={"full-pcpus-only": "false"}),
        )
    ],
    "reserved-cpus-override": [
        case(
            kubelet(reservedSystemCPUs="0,64"),
            kubelet(reservedSystemCPUs="0,64", systemReserved={"cpu": GONE}, kubeReserved={"cpu": GONE}),
        )
    ],
    "reserved-cpu-fraction": [
        case(
            kubelet(kubeReserved={"cpu": "500m"}), kubelet(kubeReserved={"cpu": "500m"}, systemReserved={"cpu": "1.5"})
        ),
        case(kubelet(kubeReserved={"cpu": "60m"}), kubelet(kubeReserved={"cpu": "60m"}, reservedSystemCPUs="0")),
    ],
    "eviction-percent": [
        case(kubelet(evictionHard=PERCENT), kubelet()),
        case(
            kubelet(evictionHard=PERCENT),
            kubelet(evictionHard=PERCENT, memoryManagerPolicy="None", reservedMemory=GONE),
        ),
    ],
    "reserved-memory-unused": [case(kubelet(memoryManagerPolicy="None"), kubelet())],
    "memory-manager-gate": [
        Case(
            (kubelet(featureGates={"MemoryManager": False}),),
            (kubelet(featureGates={"MemoryManager": True}),),
            kubelet="v1.31.0",
        )
    ],
    "cpu-reconcile-slow": [
        case(kubelet(cpuManagerReconcilePeriod="5m"), kubelet(cpuManagerReconcilePeriod="10s")),
    ],
}


CONFIG_MAP = "kind: ConfigMap\ndata:\n  NUMA_EXTENDER_{}\n"
ON_HOST = {"hostNetwork": True}
LOOPBACK = {"readinessProbe": {"httpGet": {"host": "127.0.0.1", "path": "/readyz", "port": 9600}}}
OURS = {
    "setting-unknown": [
        case(_ours(NUMA_EXTENDER_STRATEGIE="least-numa"), _ours(NUMA_EXTENDER_STRATEGY="least-numa")),
        case(CONFIG_MAP.format("PROT: '1'"), CONFIG_MAP.format("PORT: '1'")),
    ],
    "setting-invalid": [
        case(_ours(NUMA_EXTENDER_PORT="http"), _ours(NUMA_EXTENDER_PORT="9600")),
        case(_ours(NUMA_EXTENDER_STRATEGY="best"), deployment()),
        case(CONFIG_MAP.format("UNKNOWN_NODES: replay"), CONFIG_MAP.format("UNKNOWN_NODES: refuse")),
        case(_ours(NUMA_EXTENDER_LOOPBACK_SCOPES="schedule"), _ours(NUMA_EXTENDER_LOOPBACK_SCOPES='["schedule"]')),
        case(_ours(NUMA_EXTENDER_HOST="0.0.0.0"), _ours(NUMA_EXTENDER_HOST="0.0.0.0", NUMA_EXTENDER_INSECURE="true")),
        case(deployment({"env": env(NUMA_EXTENDER_TLS_KEY_FILE="/k")}), deployment()),
    ],
    "keep-alive-short": [
        case(_ours(NUMA_EXTENDER_KEEP_ALIVE_SECONDS="5"), _ours(NUMA_EXTENDER_KEEP_ALIVE_SECONDS="91")),
    ],
    "insecure": [case(_ours(NUMA_EXTENDER_INSECURE="true"), _ours(NUMA_EXTENDER_INSECURE="false"))],
    "arguments-invalid": [
        case(deployment({"args": ["serve", "--prot", "1"]}), deployment({"args": ["serve", "--port", "9600"]})),
        case(deployment({"args": ["start"]}), deployment({"args": GONE})),
        case(deployment({"args": ["serve", "--log-level=loud"]}), deployment({"args": ["serve", "--log-level=info"]})),
        case(daemonset(args=["run", "--push"]), daemonset(args=["run", "--root", "/host"])),
        case(daemonset(env=exporter_env(NUMA_PUSH_URL=GONE)), daemonset(args=["run", "--dry-run"])),
    ],
    "probe-unreachable": [
        case(_probe(port=9600), _probe()),
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
        case(_probe(port=8080), _probe()),
        case(_probe(port="metrics"), _probe(port="https")),
        case(_ours(NUMA_EXTENDER_TLS_PORT="9700"), deployment()),
        case(deployment({"env": []}), deployment()),
    ],
    "probe-path": [case(_probe(path="/healthz"), _probe())],
    "grace-period-short": [
        case(deployment(pod={"terminationGracePeriodSeconds": 10}), deployment()),
        case(_ours(NUMA_EXTENDER_SHUTDOWN_SECONDS="60"), deployment()),
    ],
    "replicas-split-reports": [case(deployment(replicas=2), deployment(replicas=1))],
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
            (daemonset(), _ours(NUMA_EXTENDER_STALE_AFTER_SECONDS="20")),
            (daemonset(), _ours(NUMA_EXTENDER_STALE_AFTER_SECONDS="90")),
        ),
    ],
    "state-file-mounted": [
        case(
            daemonset(volumeMounts=[{"name": "a", "mountPath": "/var/lib/kubelet/cpu_manager_state"}]),
            daemonset(),
        )
    ],
}

CASES = {**FILES, **SCHEDULER, **EXTENDER, **KUBELET, **OURS}
