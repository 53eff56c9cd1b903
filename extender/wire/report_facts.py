"""The parts of a report that people read and the replay does not need."""

from typing import Final

from pydantic import TypeAdapter

from extender.wire.reports import ReadReport
from node_exporter.report import Problem, ReportedPod, Zone

_PODS: Final = TypeAdapter(tuple[ReportedPod, ...])
_ZONES: Final = TypeAdapter(tuple[Zone, ...])
_PROBLEMS: Final = TypeAdapter(tuple[Problem, ...])


def report_facts(report: ReadReport) -> dict[str, object]:
    """The facts in *report*, as JSON."""
    return {
        "kubelet_version": report.kubelet_version,
        "pods": None if report.pods is None else _PODS.dump_python(report.pods, mode="json"),
        "zones": _ZONES.dump_python(report.zones, mode="json"),
        "problems": _PROBLEMS.dump_python(report.problems, mode="json"),
    }
