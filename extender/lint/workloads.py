"""Our components: manifests with containers of numa-extender or numa-node-exporter, and settings of the extender.

Settings are in containers, in ConfigMaps for `envFrom` and in environment files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from extender.identity import is_local
from extender.lint.catalogue import Finding, found
from extender.lint.context import Context
from extender.lint.documents import Located
from extender.lint.fields import meant
from extender.lint.values import environment, is_number, is_true, split_url, texts

WORKLOADS: Final = frozenset({"Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Job", "Pod"})
PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {"numa-extender": ("serve",), "numa-node-exporter": ("run",)}
"""Our programs, and the default command of their images."""
STATE_FILES: Final = (
    "cpu_manager_state", "memory_manager_state", "kubelet_internal_checkpoint", "nri-resource-policy/cache",
)  # fmt: skip
NRI_STATE: Final = "/var/lib/nri-resource-policy"
"""Where the NRI plugin keeps its state."""
GRACE_DEFAULT_SECONDS: Final = 30
PREFIX: Final = "NUMA_EXTENDER_"


@dataclass(frozen=True, slots=True)
class OwnContainer:
    """One of our containers. `arguments`: without the program's name. `variables`: those with a literal value."""

    workload: Located
    pod: Located
    container: Located
    program: str
    arguments: tuple[str, ...]
    variables: Mapping[str, Located]

    def setting(self, name: str, context: Context) -> str:
        """A setting of the extender: from the manifest, or the default."""
        given = self.variables.get(name)
        return str(given.value) if given is not None else str(context.defaults.get(name, ""))

    def option(self, flag: str, variable: str) -> str:
        """An option of the exporter: from the flag, else from the variable, else empty."""
        for position, argument in enumerate(self.arguments):
            if argument == flag:
                return "".join(self.arguments[position + 1 : position + 2])
            if argument.startswith(f"{flag}="):
                return argument.partition("=")[2]
        given = self.variables.get(variable)
        return str(given.value) if given is not None else ""


def template_of(workload: Located) -> Located | None:
    """The pod template of a workload: a Pod itself."""
    return workload if workload.text("kind") == "Pod" else workload.get("spec", "template")


def pod_of(workload: Located) -> Located:
    """The pod spec of a workload."""
    template = template_of(workload)
    return (template and template.get("spec")) or workload


def containers_of(pod: Located) -> Sequence[Located]:
    """Init containers and containers."""
    return (*pod.items("containers"), *pod.items("initContainers"))


def parts_of(workload: Located) -> Iterator[OwnContainer]:
    """Our containers in a workload, recognised by image or command."""
    pod = pod_of(workload)
    for container in containers_of(pod):
        command, arguments = texts(container, "command"), texts(container, "args")
        image = container.text("image").rpartition("/")[2].partition("@")[0].partition(":")[0]
        program = command[0].rpartition("/")[2] if command else image
        if program in PROGRAMS:
            words = (*command[1:], *arguments) or PROGRAMS[program]
            yield OwnContainer(workload, pod, container, program, words, environment(container))


def lint_workload(workload: Located, context: Context) -> Iterator[Finding]:
    """All findings about our containers in one manifest."""
    for part in parts_of(workload):
        yield from _arguments(part, context)
        yield from _probes(part, context)
        if part.program == "numa-extender":
            yield from _extender(part, context)
        else:
            yield from _exporter(part, context)


def _arguments(part: OwnContainer, context: Context) -> Iterator[Finding]:
    complaint = context.check_arguments(part.program, part.arguments)
    is_run = part.program == "numa-node-exporter" and part.arguments[:1] == ("run",)
    if is_run and "--dry-run" not in part.arguments:
        complaint = complaint or _destination_fault(part)
    if complaint is not None:
        place = part.container.near("args" if part.container.get("args") else "command")
        command = " ".join((part.program, *part.arguments))
        yield found("arguments-invalid", place, command=command, complaint=complaint, program=part.program)


def _destination_fault(part: OwnContainer) -> str | None:
    """The error if an exporter does not have exactly one receiver: an extender, or the API server."""
    nrt = part.variables.get("NUMA_NRT")
    writes_objects = "--nrt" in part.arguments or (nrt is not None and is_true(nrt.value))
    pushes = bool(part.option("--push", "NUMA_PUSH_URL"))
    if pushes and writes_objects:
        return "both NUMA_PUSH_URL (--push) and NUMA_NRT (--nrt) are set; set one of them"
    if not pushes and not writes_objects:
        return "neither NUMA_PUSH_URL (--push) nor NUMA_NRT (--nrt) is set"
    return None


def _extender(part: OwnContainer, context: Context) -> Iterator[Finding]:
    yield from lint_settings(part.variables, context)
    yield from _grace(part, context)
    replicas = part.workload.plain("spec", "replicas")
    shared = part.setting("NUMA_EXTENDER_TOPOLOGIES", context) in ("on", True)
    if part.workload.text("kind") != "Pod" and isinstance(replicas, int) and replicas > 1 and not shared:
        yield found("replicas-split-reports", part.workload.near("spec", "replicas"), replicas=replicas)
    if isinstance(replicas, int) and replicas > 1 and part.setting("NUMA_EXTENDER_LEASE", context) == "on":
        yield from _standby(part, context)
    limit = part.container.get("resources", "limits", "cpu")
    if limit is not None:
        yield found("cpu-limit", limit, limit=limit.value)


def _standby(part: OwnContainer, context: Context) -> Iterator[Finding]:
    """What happens to calls to a standby, and to its pod."""
    place = part.container.near("env")
    if not part.setting("NUMA_EXTENDER_OWN_URL", context):
        yield found("standby-refuses", place)
    if part.setting("NUMA_EXTENDER_STANDBY_READY", context).lower() in ("false", "0", "no", "off", "f", "n"):
        yield found("standby-blocks-drain", part.variables.get("NUMA_EXTENDER_STANDBY_READY", place))


def _grace(part: OwnContainer, context: Context) -> Iterator[Finding]:
    grace = part.pod.plain("terminationGracePeriodSeconds")
    seconds = grace if isinstance(grace, int) else GRACE_DEFAULT_SECONDS
    names = ("NUMA_EXTENDER_DRAIN_SECONDS", "NUMA_EXTENDER_SHUTDOWN_SECONDS")
    needed = sum(float(text) for text in (part.setting(name, context) for name in names) if is_number(text))
    if seconds <= needed:
        place = part.pod.near("terminationGracePeriodSeconds")
        yield found("grace-period-short", place, seconds=seconds, needed=needed)


def _listeners(part: OwnContainer, context: Context) -> Mapping[str, str]:
    """The addresses by port on which the program listens."""
    if part.program == "numa-node-exporter":
        host, _, port = (part.option("--listen", "NUMA_LISTEN") or "127.0.0.1:9473").rpartition(":")
        return {port: host}
    plain = part.option("--port", "NUMA_EXTENDER_PORT") or part.setting("NUMA_EXTENDER_PORT", context)
    listeners = {plain: part.option("--host", "NUMA_EXTENDER_HOST") or part.setting("NUMA_EXTENDER_HOST", context)}
    if part.variables.get("NUMA_EXTENDER_TLS_CERT_FILE"):
        host = part.setting("NUMA_EXTENDER_TLS_HOST", context)
        listeners[part.setting("NUMA_EXTENDER_TLS_PORT", context)] = host
    return listeners


def _probes(part: OwnContainer, context: Context) -> Iterator[Finding]:
    listeners = _listeners(part, context)
    names = {entry.text("name"): str(entry.plain("containerPort")) for entry in part.container.items("ports")}
    on_host = part.pod.plain("hostNetwork") is True
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = part.container.get(kind, "httpGet")
        if probe is None:
            continue
        named = str(probe.plain("port"))
        port = names.get(named, named)
        if port not in listeners:
            ports = " and ".join(listeners)
            yield found("probe-port", probe.near("port"), probe=kind, port=named, program=part.program, ports=ports)
        elif is_local(listeners[port]) and not (on_host and is_local(probe.text("host"))):
            yield found("probe-unreachable", probe, program=part.program, address=f"{listeners[port]}:{port}")
        if probe.text("path") not in context.probes[part.program]:
            path, paths = probe.text("path") or "/", ", ".join(sorted(context.probes[part.program]))
            yield found("probe-path", probe.near("path"), program=part.program, path=path, paths=paths)


def _exporter(part: OwnContainer, context: Context) -> Iterator[Finding]:
    yield from _push(part)
    has_version = part.option("--kubelet-url", "KUBELET_URL") or part.option("--kubelet-version", "KUBELET_VERSION")
    if "run" in part.arguments and not has_version:
        yield found("kubelet-not-asked", part.container)
    yield from _kubelet_proof(part)
    stale = context.surroundings.stale_after_seconds or context.defaults.get("NUMA_EXTENDER_STALE_AFTER_SECONDS")
    interval = part.option("--interval", "NUMA_INTERVAL") or "30"
    if isinstance(stale, int | float) and is_number(interval) and float(interval) * 1.1 >= stale:
        yield found("interval-makes-stale", part.container, interval=interval, stale=stale)
    mounts = part.container.items("volumeMounts")
    reads_nri = part.option("--nri-namespace", "NUMA_NRI_NAMESPACE") or part.option("--nri-config", "NUMA_NRI_CONFIG")
    if reads_nri and not any(mount.text("mountPath").endswith(NRI_STATE) for mount in mounts):
        yield found("nri-grants-unread", part.container.near("volumeMounts"))
    for mount in mounts:
        if mount.text("mountPath").endswith(STATE_FILES) or mount.text("subPath").endswith(STATE_FILES):
            yield found("state-file-mounted", mount.near("mountPath"), path=mount.text("mountPath"))


def _kubelet_proof(part: OwnContainer) -> Iterator[Finding]:
    ca = part.option("--kubelet-ca-file", "KUBELET_CA_FILE")
    pin = part.option("--kubelet-pin-file", "KUBELET_PIN_FILE")
    if not part.option("--kubelet-url", "KUBELET_URL"):
        return
    if ca and pin:
        place = part.variables.get("KUBELET_PIN_FILE", part.container)
        yield found("kubelet-unproven", place, ca="KUBELET_CA_FILE", pin="KUBELET_PIN_FILE")
    elif not ca and not pin:
        yield found("kubelet-unproven", part.variables.get("KUBELET_URL", part.container))


def _push(part: OwnContainer) -> Iterator[Finding]:
    url = split_url(part.option("--push", "NUMA_PUSH_URL"))
    place = part.variables.get("NUMA_PUSH_URL", part.container)
    if url is None:
        return
    if url.scheme == "http" and not is_local(url.hostname or ""):
        yield found("push-in-clear", place, host=url.hostname)
    if url.scheme == "http" and part.option("--token-file", "NUMA_TOKEN_FILE"):
        yield found("token-in-clear", place, host=url.hostname)
    if is_local(url.hostname or "") and part.pod.plain("hostNetwork") is not True:
        yield found("push-to-loopback", place, host=url.hostname)


def lint_settings(variables: Mapping[str, Located], context: Context) -> Iterator[Finding]:
    """Findings about environment variables. Variables of other programs are skipped."""
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    for name, value in ours.items():
        if name not in context.defaults:
            yield found("setting-unknown", value, name=name, meant=meant(name, context.defaults))
    insecure = ours.get(f"{PREFIX}INSECURE")
    if insecure is not None and is_true(insecure.value):
        yield found("insecure", insecure)
    known = {name: str(value.value) for name, value in ours.items() if name in context.defaults}
    for name, reason in context.check_settings(known):
        if name == f"{PREFIX}KEEP_ALIVE_SECONDS":
            yield found("keep-alive-short", ours[name], reason=reason)
        else:
            yield found("setting-invalid", ours[name], name=name, reason=reason)
