"""Nodes with the NRI topology-aware policy: annotations in manifests, and the policy's configuration.

Whether the plugin starts is decided by the replay, on an assumed machine that has every CPU that the configuration
names. What depends on the real machine cannot be checked.
"""

import re
from collections.abc import Iterator
from typing import Final

from extender.lint import fields
from extender.lint.catalogue import Finding, found
from extender.lint.context import Context
from extender.lint.documents import Located
from extender.lint.workloads import containers_of, template_of
from extender.nri.config import PolicyConfig, PolicyStartError
from extender.nri.cpu_allocator import discover
from extender.nri.events import set_up
from extender.nri.machine import CPU, DRAM, MemoryNode, NriMachine
from extender.nri.text import PatternError, regex_of
from extender.wire.errors import WireError
from extender.wire.known_fields import NRI_OPTIONS
from extender.wire.nri_annotations import FaultKind, annotation_faults
from extender.wire.nri_scenarios import config_from_json

KIND: Final = "TopologyAwarePolicy"
API_VERSION: Final = "config.nri/v1alpha1"
LEAST_CPUS: Final = 64
MOST_CPUS: Final = 1024
"""Limit on the CPUs of the assumed machine."""
_RULES: Final = {
    FaultKind.NO_EFFECT: "nri-annotation-ignored",
    FaultKind.REFUSED: "nri-annotation-refused",
    FaultKind.CRASH: "nri-annotation-crash",
}


def lint_annotations(workload: Located) -> Iterator[Finding]:
    """Findings about the policy's annotations of a workload's pods."""
    template = template_of(workload) or workload
    given = template.entries("metadata", "annotations")
    pod = template.get("spec")
    if not given or pod is None:
        return
    containers = [each.text("name") for each in containers_of(pod)]
    texts = {key: place.value for key, place in given.items() if isinstance(place.value, str)}
    for fault in annotation_faults(texts, containers):
        place = given.get(fault.key, template.near("metadata", "annotations"))
        yield found(_RULES[fault.kind], place, fault=fault.text)


def lint_policy_config(document: Located, context: Context) -> Iterator[Finding]:
    """Findings about one TopologyAwarePolicy."""
    spec = document.get("spec")
    if spec is None or not isinstance(spec.value, dict):
        place, reason = document.near("spec"), "there is no spec"
        yield found("nri-config-invalid", place, reason=reason, fix="write the settings below spec")
        return
    for key in spec.entries().keys() - NRI_OPTIONS.keys():
        yield found("nri-field-misspelled", spec.near(key), name=key, meant=fields.meant(key, NRI_OPTIONS))
    yield from _start(spec)
    yield from _traps(spec, context)


def _start(spec: Located) -> Iterator[Finding]:
    try:
        config = config_from_json(spec.value, "")
        machine = _assumed(config)
        if machine is not None:
            set_up(discover(machine), config)
    except WireError as error:
        place = spec.near(*re.findall(r"\w+", error.field))
        yield found("nri-config-invalid", place, reason=f"{error.field}: {error.reason}", fix="correct the value")
    except PolicyStartError as error:
        key = "availableResources" if "availableResources" in str(error) else "reservedResources"
        yield found("nri-config-invalid", spec.near(key, "cpu"), reason=error, fix="see docs/nri-topology-aware.md")


def _assumed(config: PolicyConfig) -> NriMachine | None:
    """A machine with all CPUs that are named, on one NUMA node; None if they are too many."""
    texts = (config.available_cpus, config.reserved_cpus)
    named = [int(number) for text in texts if text and ":" in text for number in re.findall(r"\d{1,9}", text)]
    count = max(LEAST_CPUS, *(number + 1 for number in named), 0)
    count = max(count, (config.reserved_millicpu or 0) // 1000 + 2)
    if count > MOST_CPUS:
        return None
    online = (1 << count) - 1
    return NriMachine(
        cpus=tuple(CPU(i, 0, 0, 0, 0, 1 << i, 0, "", ()) for i in range(count)),
        nodes=(MemoryNode(0, online, 1 << 40, DRAM, is_normal=True, distances=(10,)),),
        devices=(),
        present=online,
        isolated=0,
        performance=online,
        efficient=0,
        memory_total_bytes=1 << 40,
    )


def _traps(spec: Located, context: Context) -> Iterator[Finding]:
    for place in spec.items("reservedPoolNamespaces"):
        try:
            regex_of(str(place.value))
        except PatternError:
            yield found("nri-namespace-pattern", place, pattern=place.value)
    agent = spec.get("agent")
    if agent is not None and agent.plain("nodeResourceTopology") is not True:
        yield found("nri-zones-off", agent)
    if spec.get("unlimitedBurstable") is not None:
        yield found("nri-unlimited-burstable", spec.near("unlimitedBurstable"))
    around = context.surroundings
    if around.has_static_cpu and spec.plain("pinCPU") is not False:
        yield found("nri-static-cpu", spec.near("pinCPU"))
    reserved, known = spec.text("reservedResources", "cpu"), around.reserved_millicpu
    millicpu = _reserved_millicpu(spec)
    if known is not None and millicpu is not None and millicpu > known:
        place = spec.near("reservedResources", "cpu")
        yield found("nri-reserves-more", place, setting=reserved, cpus=millicpu // 1000, known=known)


def _reserved_millicpu(spec: Located) -> int | None:
    """The CPUs that the policy reserves, whole ones, in mCPU; None if that is not known."""
    text = spec.text("reservedResources", "cpu")
    try:
        config = config_from_json({"reservedResources": {"cpu": text}}, "")
        machine = _assumed(config)
        return None if machine is None else 1000 * set_up(discover(machine), config).share.reserved.bit_count()
    except (WireError, PolicyStartError):
        return None
