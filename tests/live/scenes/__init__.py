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
    compaction,
    demands,
    direct,
    filter_only,
    frozen,
    groups,
    ignorable,
    jobs,
    karpenter,
    kills,
    kueue,
    late_plugins,
    long_queue,
    mixed,
    preemption,
    quiet,
    reconfigured,
    replicas,
    replicasets,
    resizes,
    restarts,
    room,
    scale_up,
    slow_etcd,
    slow_stops,
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
    "replicasets": replicasets.play,
    "resizes": resizes.play,
    "reconfigured": reconfigured.play,
    "kills": kills.play,
    "replicas": replicas.play,
    "ignorable": ignorable.play,
    "topologies": topologies.play,
    "waking": waking.play,
    "groups": groups.play,
    "demands": demands.play,
    "filter-only": filter_only.play,
    "direct": direct.play,
    "claims": claims.play,
    "arrivals": arrivals.play,
    "arrivals-default": arrivals.play_by_default,
    "jobs": jobs.play,
    "long-queue": long_queue.play,
    "late-plugins": late_plugins.play,
    "slow-stops": slow_stops.play,
    "api-restarts": api_restarts.play,
    "frozen": frozen.play,
    "slow-etcd": slow_etcd.play,
    "compaction": compaction.play,
    "scale-up": scale_up.play,
    "room": room.play,
    "karpenter": karpenter.play,
    "kueue": kueue.play,
    "throughput": throughput.play,
    "strategies": throughput.play_strategies,
}
ONLY_REAL: Final = ("resizes", "reconfigured")
"""Restated kubelets do not do what happens there."""
WITH_REAL_KUBELETS: Final = ("mixed", "restarts", "late-plugins", "jobs", "slow-stops", "direct", *ONLY_REAL)
"""Played with real kubelets where none is named. The others were not tried, or are made for restated ones."""
