"""The scenes, by name. Each is `play(binaries, plan, say) -> Findings`."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.live.binaries import Binaries
from tests.live.cluster import Plan, Say
from tests.live.report import Findings
from tests.live.scenes import (
    api_restarts,
    arrivals,
    claims,
    demands,
    groups,
    ignorable,
    kills,
    mixed,
    preemption,
    quiet,
    replicas,
    restarts,
    throughput,
    topologies,
    waking,
)

Scene = Callable[[Binaries, Plan, Say], Findings]
SCENES: Final[Mapping[str, Scene]] = {
    "mixed": mixed.play,
    "preemption": preemption.play,
    "restarts": restarts.play,
    "quiet": quiet.play,
    "kills": kills.play,
    "replicas": replicas.play,
    "ignorable": ignorable.play,
    "topologies": topologies.play,
    "waking": waking.play,
    "groups": groups.play,
    "demands": demands.play,
    "claims": claims.play,
    "arrivals": arrivals.play,
    "arrivals-default": arrivals.play_by_default,
    "api-restarts": api_restarts.play,
    "throughput": throughput.play,
}
