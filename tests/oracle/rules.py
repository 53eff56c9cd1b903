"""What differs between kubelet versions (§11), one boolean each; a scenario may set any of them by hand."""

import re
from dataclasses import dataclass
from typing import Any

from tests.oracle.errors import NaiveKubeletError


def _gate(gates: dict[str, bool], name: str, *, default: bool) -> bool:
    return bool(gates.get(name, default))


@dataclass(frozen=True)
class OracleRules:
    minor: int
    gates: dict[str, bool]
    overrides: dict[str, bool]

    @classmethod
    def of(cls, version: str, gates: dict[str, bool], overrides: dict[str, bool]) -> "OracleRules":
        match = re.match(r"v?1\.(\d+)", version)
        if match is None:
            raise NaiveKubeletError(f"not a kubelet version: {version}")
        return cls(int(match[1]), dict(gates), dict(overrides))

    def _is(self, name: str, by_version: bool) -> bool:  # noqa: FBT001
        return self.overrides.get(name, by_version)

    @property
    def distribute_inside_hint(self) -> bool:
        return self._is("distribute_inside_hint", by_version=False)

    @property
    def distribute_whole_groups(self) -> bool:
        return self._is("distribute_whole_groups", by_version=False)

    @property
    def spread_by_topology(self) -> bool:
        return self._is("spread_by_topology", by_version=False)

    @property
    def sidecars(self) -> bool:
        return self._is("sidecars", self.minor >= 29)

    @property
    def sidecars_in_device_totals(self) -> bool:
        return self._is("sidecars_in_device_totals", self.minor >= 28)

    @property
    def qos_from_status(self) -> bool:
        return self._is("qos_from_status", self.minor >= 29)

    @property
    def cpu_error_counts(self) -> bool:
        return self._is("cpu_error_counts", self.minor >= 29)

    @property
    def topology_options_ignored_by_none(self) -> bool:
        return self._is("topology_options_ignored_by_none", self.minor >= 28)

    @property
    def memory_group_check(self) -> bool:
        return self._is("memory_group_check", self.minor >= 32)

    @property
    def smt_message_fixed(self) -> bool:
        return self._is("smt_message_fixed", self.minor >= 32)

    @property
    def uncore_partial_rounds_up(self) -> bool:
        return self._is("uncore_partial_rounds_up", self.minor >= 33)

    @property
    def device_numa_narrowing(self) -> bool:
        return self._is("device_numa_narrowing", self.minor >= 36)

    @property
    def allocated_resources_from_status(self) -> bool:
        on = _gate(self.gates, "InPlacePodVerticalScaling", default=True)
        return self._is("allocated_resources_from_status", self.minor in {33, 34} and on)

    @property
    def pod_level_gate(self) -> bool:
        return self.minor >= 32 and _gate(self.gates, "PodLevelResources", default=self.minor >= 34)

    @property
    def pod_level_qos(self) -> bool:
        return self._is("pod_level_qos", self.pod_level_gate)

    @property
    def pod_level_qos_needs_amounts(self) -> bool:
        on = _gate(self.gates, "PodLevelResourcesFixKubeletQOSClass", default=True)
        return self._is("pod_level_qos_needs_amounts", self.minor >= 37 and on)

    @property
    def smt_check_after_held(self) -> bool:
        return self._is("smt_check_after_held", self.minor >= 37)

    @property
    def empty_memory_request_skipped(self) -> bool:
        return self._is("empty_memory_request_skipped", self.minor >= 37)

    @property
    def pod_level_skips_managers(self) -> bool:
        return self._is("pod_level_skips_managers", self.minor >= 34 and self.pod_level_gate)

    @property
    def pod_level_managers(self) -> bool:
        on = self.pod_level_gate and _gate(self.gates, "PodLevelResourceManagers", default=False)
        return self._is("pod_level_managers", self.minor >= 36 and on)


# §6.11: option -> the minors since which it is alpha, beta, stable
CPU_OPTIONS: dict[str, tuple[int | None, int | None, int | None]] = {
    "full-pcpus-only": (None, 23, 33),
    "distribute-cpus-across-numa": (23, 33, None),
    "align-by-socket": (25, None, None),
    "distribute-cpus-across-cores": (31, None, None),
    "strict-cpu-reservation": (32, 33, 35),
    "prefer-align-cpus-by-uncorecache": (32, 34, 36),
}
# §5.1
TOPOLOGY_OPTIONS: dict[str, tuple[int | None, int | None, int | None]] = {
    "prefer-closest-numa-nodes": (26, 28, 32),
    "max-allowable-numa-nodes": (None, 31, 35),
}


def _parse_bool(text: str, name: str) -> bool:
    if text in {"1", "t", "T", "TRUE", "true", "True"}:
        return True
    if text in {"0", "f", "F", "FALSE", "false", "False"}:
        return False
    raise NaiveKubeletError(f"option {name} is neither true nor false: {text}")


def read_options(
    prefix: str,
    options: dict[str, Any],
    known: dict[str, tuple[int | None, int | None, int | None]],
    rules: OracleRules,
) -> dict[str, Any]:
    """The options that are on. *prefix* (`CPU Manager`, `Topology Manager`) also names the feature gates."""
    result: dict[str, Any] = {}
    gate = prefix.replace(" ", "") + "Policy"
    beta_default = prefix == "CPU Manager" or rules.minor >= 28
    for name, value in options.items():
        alpha_since, beta_since, stable_since = known.get(name, (None, None, None))
        if stable_since is not None and rules.minor >= stable_since:
            pass
        elif beta_since is not None and rules.minor >= beta_since:
            if not _gate(rules.gates, f"{gate}BetaOptions", default=beta_default):
                raise _not_enabled(prefix, "Beta", name)
        elif alpha_since is not None and rules.minor >= alpha_since:
            if not _gate(rules.gates, f"{gate}AlphaOptions", default=False):
                raise _not_enabled(prefix, "Alpha", name)
        else:
            raise NaiveKubeletError(f"the {prefix} of this version has no option {name}")
        if name == "max-allowable-numa-nodes":
            result[name] = int(value)
        elif _parse_bool(str(value), name):
            result[name] = True
    return result


def _not_enabled(prefix: str, level: str, name: str) -> NaiveKubeletError:
    return NaiveKubeletError(f'{prefix} Policy {level}-level Options not enabled, but option "{name}" provided')
