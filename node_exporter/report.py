"""NodeReport v1: the published contract between the exporter on a node and the reader that replays that node.

Rules of this file
- Facts, not interpretation: what the kernel, the kubelet and its files say. Nothing here is rounded, merged or guessed.
- Standard library only, so that the exporter stays small. Each reader validates reports itself.
- Values are frozen. The JSON of a report is its fields in the order written here; JSON names are the field names.
- A field is never renamed or retyped within a schema version. New optional fields may be added. Readers ignore unknown
  fields.
"""

# ruff: noqa: N815 - the fields of KubeletConfig bear the names of the kubelet's own KubeletConfiguration

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

SCHEMA_VERSION = 1

Cpu = tuple[int, int, int, int, int | None]
"""One online logical CPU: (cpu, core_id, socket, numa, uncore_cache); see `ReportedMachine.cpus`."""

Severity = Literal["info", "warning", "error"]
"""`info`: nothing is lost. `warning`: sources disagree or a part is missing. `error`: a whole source is unreadable."""

JsonObject = Mapping[str, object]
"""A parsed JSON document of another program, passed on unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One NUMA node directory of sysfs, nodes without CPUs or memory included.

    `id` is the kernel's (sparse ids are usual). Without node directories it is the package's id, -1 on some machines.
    `memory` is MemTotal in bytes, 0 if unknown. `hugepages` is pages (not bytes) by page size: {"2Mi": 512, "1Gi": 0}.
    `distances` is the node's own row, in the order of the node ids; None if sysfs has none.
    """

    id: int
    memory: int
    hugepages: Mapping[str, int]
    distances: Sequence[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedMachine:
    """The hardware as the kubelet discovers it (cadvisor GetNodesInfo, GetTopology).

    `cpus`: one row per online CPU, sorted by CPU id: [cpu, core_id, socket, numa, uncore_cache]. `core_id` is the
    kernel's, unique only within a socket; `uncore_cache` is None for a core that has none in the kubelet's count.
    `numa`: sorted by id. `num_sockets`: the kubelet's own count, from /proc/cpuinfo; 0 if it finds none. Both lists are
    empty if /sys could not be read. `num_cpus` and `num_cores`: the kubelet's own counts, where sysfs lists a CPU under
    several NUMA nodes. The kubelet counts such a CPU and its core once for each of them. None: the number of rows, and
    of the cores in them.
    """

    cpus: Sequence[Cpu]
    numa: Sequence[NumaNode]
    num_sockets: int
    num_cpus: int | None = None
    num_cores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedReservedMemory:
    """One entry of KubeletConfiguration.reservedMemory; `limits` are quantities by resource name."""

    numaNode: int
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedKubeletConfig:
    """The kubelet's effective configuration, as far as admission depends on it.

    Field names and values are KubeletConfiguration's, with its defaults for unset fields. `reservation` is the
    difference between capacity and node allocatable, as quantities by resource name: systemReserved + kubeReserved +
    the hard eviction threshold of memory (100Mi by default; a percentage is of the machine's memory). With
    `reservedSystemCPUs` its `cpu` is the number of listed CPUs. `featureGates` has only gates that are set explicitly.
    """

    cpuManagerPolicy: str = "none"
    cpuManagerPolicyOptions: Mapping[str, str] = field(default_factory=dict)
    memoryManagerPolicy: str = "None"
    reservedMemory: Sequence[ReportedReservedMemory] = ()
    topologyManagerPolicy: str = "none"
    topologyManagerScope: str = "container"
    topologyManagerPolicyOptions: Mapping[str, str] = field(default_factory=dict)
    reservedSystemCPUs: str = ""
    featureGates: Mapping[str, bool] = field(default_factory=dict)
    reservation: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDevice:
    """One device of a device plugin. `numa`: sorted NUMA ids; None: the plugin reported none, or they are unknown."""

    id: str
    numa: Sequence[int] | None
    healthy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletState:
    """The kubelet's three checkpoint files as parsed JSON. None: missing or unreadable, which a problem states."""

    cpu_manager_state: JsonObject | None = None
    memory_manager_state: JsonObject | None = None
    kubelet_internal_checkpoint: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedMemoryBlock:
    """Memory or hugepages pinned for a container. `size`: total bytes over the NUMA nodes `numa`, not on each."""

    type: str
    size: int
    numa: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedContainer:
    """A container in podresources: exclusive CPUs (empty: shared pool), memory, device ids by resource."""

    name: str
    cpus: Sequence[int] = ()
    memory: Sequence[ReportedMemoryBlock] = ()
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPod:
    """A pod of podresources List, or a pod with resources in a state file.

    `name` and `namespace` are empty for a pod of which only the UID is known (in a state file, not listed).
    `uid` is None if it is unknown: podresources has no UIDs, they come from the pod log directories of the node.
    `counted`: whether the kubelet counts the pod at its next admission (GetActivePods). None: unknown, because this
    kubelet version also lists finished pods.
    """

    namespace: str
    name: str
    uid: str | None
    counted: bool | None
    containers: Sequence[ReportedContainer] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Amounts of a resource: total, allocatable, and free now. In CPUs, bytes or devices."""

    capacity: int
    allocatable: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """Amounts of one zone, for people and for NodeResourceTopology. The replay does not read them.

    `type` "Node" is one NUMA node, `name` "node-<id>". `type` "NodeGroup" has the devices of several NUMA nodes, so
    that they count once. Its name has all ids, as in "node-0-1". `costs`: distance by zone name.
    `resources`: `cpu` in CPUs, `memory` and `hugepages-<size>` in bytes, devices as counts; sorted by name.
    """

    name: str
    type: Literal["Node", "NodeGroup"]
    numa: Sequence[int]
    costs: Mapping[str, int]
    resources: Mapping[str, Amount]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """Something that is missing, unreadable or contradictory: where (`source`, `path`), and why, with both values."""

    source: str
    path: str
    reason: str
    severity: Severity = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResourcesService:
    """Whether the kubelet answers on its podresources socket, and since when, in Unix seconds by the node's clock.

    `available` True: its process answers, however late. `since` is when it created the socket, as it does at its start.
    `available` False: the socket is gone, no process listens on it, or it does not begin a connection. The kubelet is
    stopped, hangs, or does not serve yet. `since` is when this exporter first saw that. `certain`: nothing is said if
    there never was a socket, or if the exporter may not connect to it. Exporters older than this field say False then.

    Consequence: after `since` a kubelet first admits the pods of its first list. Until it has a list from every pod
    source, its managers do not release the resources of ended pods (`sourcesReady` in pkg/kubelet/kubelet.go
    syncLoopIteration; `removeStaleState` of both managers, `UpdateAllocatedDevices`; all versions). The kubelet does
    not publish when this time ends.
    """

    available: bool
    since: float
    certain: bool = False


ReportedNriCache = tuple[int, int, str]
"""One cache: (level, id, CPUs that share it)."""

ReportedNriCpu = tuple[int, int, int, int, int, str, int, str, Sequence[int]]
"""One online CPU: (cpu, package, die, cluster, node, threads of its core, base kHz, preference, caches).

Base kHz is 0 and the energy performance preference "" if they are not known. `caches` are positions in
`ReportedNriMachine.caches`, by the kernel's index.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedNriNode:
    """One NUMA node directory of sysfs. `memory` is MemTotal in bytes; `distances` is the node's own row."""

    id: int
    cpus: str
    memory: int
    has_memory: bool
    has_normal_memory: bool
    is_online: bool
    distances: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedNriMachine:
    """The hardware as the NRI plugin's discovery reads it (`pkg/sysfs/system.go` of containers/nri-plugins).

    `nodes` is empty if the kernel has no NUMA support. `present`: the CPUs with a directory of their own, online or
    not. `performance` and `efficient`: the CPUs of each core kind, None if the kernel has no such file.
    `memory_total`: MemTotal of /proc/meminfo, in bytes. Sets of CPUs are lists in the kernel's format.
    """

    cpus: Sequence[ReportedNriCpu]
    caches: Sequence[ReportedNriCache]
    nodes: Sequence[ReportedNriNode]
    present: str
    isolated: str
    performance: str | None
    efficient: str | None
    memory_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedNriGrant:
    """What the plugin granted a container, from its state file.

    `exclusive` is a list of CPUs, `millicpu` a share of the pool's shared or reserved CPUs. `memory_nodes` is a mask of
    NUMA nodes, `memory_types` one of types: 1 DRAM, 2 PMEM, 4 HBM; 8 stands for memory that is left alone. `pod_uid`,
    `qos` and the labels are empty if the plugin no longer knows the pod. `requests_cpu`: the container has a CPU
    request, according to the plugin.
    """

    container_id: str
    namespace: str
    pod: str
    container: str
    pool: str
    cpu_type: Literal["normal", "reserved", "preserve"]
    exclusive: str
    millicpu: int
    memory_nodes: int
    memory_types: int
    memory_bytes: int
    pod_uid: str = ""
    qos: Literal["Guaranteed", "Burstable", "BestEffort", ""] = ""
    requests_cpu: bool = False
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedNriPolicy:
    """A node on which the NRI topology-aware policy runs.

    `version` is that of this section; a reader that does not know it leaves the section out. `machine` None: the
    plugin's discovery fails here, `problems` of the report say why, and no container is managed. `config` None: not
    known. Otherwise it is the spec of the TopologyAwarePolicy that applies to this node. `config_source` is its name
    (`node.NAME`, `group.NAME`, `default`, or a path), and `config_status` the plugin's last status of it (`Success`,
    `Failure`, "" if it has none). `grants` None: not known; they are as the plugin last wrote them.

    `policy`: the name in the plugin's state file; of any other policy than this one only the name is reported.
    `release`: of the plugin ("v0.14.0"), as an option of the exporter or the only image of the plugin on the node says;
    "": not known. `grant_fields`: names of the fields of a grant in the state file, which differ by release; empty:
    there is no grant. `doubts`: reasons, for people, why the plugin may run with another configuration.
    """

    version: int = 1
    machine: ReportedNriMachine | None
    config: JsonObject | None
    config_source: str = ""
    config_status: str = ""
    grants: Sequence[ReportedNriGrant] | None = None
    policy: str = "topology-aware"
    release: str = ""
    grant_fields: Sequence[str] = ()
    doubts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One consistent observation of a node.

    Order: within one `boot_id` (empty: unknown) a higher `sequence` is newer. It also grows over restarts of the
    exporter and clock jumps. `observed_at` is Unix seconds by the node's clock, for people. `kubelet_version` is as in
    node.status.nodeInfo ("v1.36.2"), None if unknown. `kubelet` None: no configuration could be found, so no verdict
    is possible. `devices`: by resource name, None if neither podresources nor the checkpoint could be read; an empty
    object means that there are none. `pods` None: podresources did not answer. `rules`: behaviour that the kubelet's
    vendor back-ported or removed, from the exporter's options; a reader must refuse a report with an unknown name.
    Empty: the kubelet behaves as its version. `podresources` None: unknown, because the exporter has no permission to
    see the socket or is older than this field; `observed_at` - `since` is how long it has had this state.
    `nri` None: the exporter has not found an NRI topology-aware policy on the node. `pcie_roots`: the NUMA node of each
    PCIe root, as {"pci0000:3a": 0}; empty if the kernel knows none, and of exporters that are older than this field.
    `claimed_cpus`: the CPU list of each claim that dra-driver-cpu has prepared, by its UID.
    """

    schema_version: int = SCHEMA_VERSION
    node_name: str
    boot_id: str
    sequence: int
    observed_at: float
    kubelet_version: str | None
    machine: ReportedMachine
    kubelet: ReportedKubeletConfig | None
    devices: Mapping[str, Sequence[ReportedDevice]] | None
    state: KubeletState
    pods: Sequence[ReportedPod] | None
    zones: Sequence[Zone] = ()
    problems: Sequence[Problem] = ()
    rules: Mapping[str, bool] = field(default_factory=dict)
    podresources: PodResourcesService | None = None
    nri: ReportedNriPolicy | None = None
    pcie_roots: Mapping[str, int] = field(default_factory=dict)
    claimed_cpus: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Confirms that the report (`boot_id`, `sequence`) is still valid at `observed_at`.

    `digest` is the SHA-256, in hex, of the body of that report before compression. A reader that does not have exactly
    this report replies with 404 or 409, and gets the full report.
    """

    boot_id: str
    sequence: int
    digest: str
    observed_at: float
