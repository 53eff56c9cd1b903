"""For every rule of the catalogue: documents that trip it, and the same ones mended."""

from tests.lint.autoscaler_cases import AUTOSCALERS
from tests.lint.building import GONE, Case, alert, case, extender, foreign, host_scheduler, https, scheduler
from tests.lint.demand_cases import DEMANDS
from tests.lint.device_cases import DEVICES
from tests.lint.kubelet_cases import KUBELET
from tests.lint.nri_cases import NRI
from tests.lint.our_cases import OURS, ours

SERVICE = extender(urlPrefix="http://numa-extender.numa-extender.svc:9600/scheduler")

BINDER = extender(
    filterVerb=GONE,
    prioritizeVerb=GONE,
    preemptVerb=GONE,
    weight=GONE,
    managedResources=[{"name": "a.io/x", "ignoredByScheduler": True}],
)
"""An entry for bind alone, of pods that ask for a.io/x."""


def ignoring(*resources: str) -> dict[str, object]:
    """A profile whose NodeResourcesFit ignores these."""
    return {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": list(resources)}}]}


FILES = {
    "unreadable": [case("a: [", "a: []")],
    "duplicate-key": [case(scheduler() + "parallelism: 1\nparallelism: 2\n", scheduler() + "parallelism: 2\n")],
    "kustomization-not-built": [
        case("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", scheduler()),
        case("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n", "kind: Component\n"),
    ],
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
            (scheduler(extender(httpTimeout="2s", bindVerb=GONE)), ours(NUMA_EXTENDER_FILTER_SECONDS="2")),
            (scheduler(extender(httpTimeout="2.1s", bindVerb=GONE)), ours(NUMA_EXTENDER_FILTER_SECONDS="2")),
        ),
        Case((scheduler(extender(httpTimeout="2s")),), (scheduler(extender(httpTimeout="2s", bindVerb=GONE)),)),
        Case(
            (scheduler(extender(httpTimeout="5s")), ours(NUMA_EXTENDER_BIND_SECONDS="2.5")),
            (scheduler(extender(httpTimeout="5s")), ours(NUMA_EXTENDER_BIND_SECONDS="2")),
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
    "binder-of-some-pods": [
        case(scheduler(BINDER, extender(ignorable=True, bindVerb=GONE)), scheduler(extender())),
    ],
    "ignored-by-scheduler": [
        case(scheduler(BINDER, profiles=[ignoring("b.io/y")]), scheduler(BINDER, profiles=[ignoring("a.io/x")])),
        case(scheduler(BINDER, profiles=[ignoring("a.io/x", "b.io/y")]), scheduler(BINDER, profiles=[{}])),
        case(scheduler(BINDER, profiles=[ignoring("b.io/y")]), scheduler(profiles=[ignoring("b.io/y")])),
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
    "ignorable-binder": [
        case(scheduler(extender(ignorable=True)), scheduler(extender(ignorable=True, bindVerb=GONE))),
        case(scheduler(extender(ignorable=True)), scheduler(BINDER, extender(ignorable=True, bindVerb=GONE))),
    ],
}

CASES = {**FILES, **SCHEDULER, **EXTENDER, **KUBELET, **OURS, **NRI, **DEMANDS, **DEVICES, **AUTOSCALERS}
