"""`numa-extender replay`: replays histories of pods, and compares the results with recordings."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click

from extender.cli.recordings import Replay, Replayed, check_files, read_scenarios, replay_files
from extender.cli.replay_dra import DRA, DRA_CPU
from extender.cli.replay_nri import nri_replay
from extender.conformance.agreement import COUNTED, check
from extender.conformance.scenario import Admission, KubeletCrashError, run
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.rules import parse_minor
from extender.kubelet.verdict import Certainty
from extender.wire.errors import WireError
from extender.wire.scenarios import Scenario, scenario_from_json
from extender.wire.verdicts import verdict_to_json


@click.command(short_help="Replay scenarios from files.")
@click.argument("files", nargs=-1, metavar="[FILE|-]...")
@click.option("--check", "is_check", is_flag=True, help="Compare with the recorded answers of the scenarios.")
@click.option(
    "--policy",
    type=click.Choice(("kubelet", "nri-topology-aware", "dra", "dra-cpu")),
    default="kubelet",
    show_default=True,
    help="Replay the kubelet, the NRI plugin, kube-scheduler's DRA allocator, or dra-driver-cpu.",
)
@click.option("--machines", metavar="FILE", help="Machine snapshots, as JSON or .xz; required for nri-topology-aware.")
def replay(files: tuple[str, ...], *, is_check: bool, policy: str, machines: str | None) -> None:
    """Replay scenarios: one JSON object in each line, also in .xz files. No FILE or - is standard input.

    Prints one line of JSON for each scenario, with the answer of the kubelet, or of the policy, to each step. For dra,
    a line has the objects of a cluster and the claims to allocate; the answer is for each node. With --check, prints
    a comparison with the recorded answers and the first differences, and exits with 1 if there are any.
    """
    if (machines is not None) != (policy == "nri-topology-aware"):
        raise click.UsageError("--policy nri-topology-aware needs --machines, and only this policy uses it")
    try:
        policy_replay = nri_replay(machines) if machines is not None else _REPLAYS[policy]
        if is_check:
            sys.exit(check_files(policy_replay, files or ("-",)))
        replay_files(policy_replay, files or ("-",))
    except WireError as error:
        raise click.ClickException(str(error)) from None


def _scenarios(name: str) -> Iterator[Replayed]:
    file = Path(name).name.removesuffix(".xz").removesuffix(".jsonl")
    for _, scenario in read_scenarios(name, scenario_from_json):
        group = file, f"1.{parse_minor(scenario.config.kubelet_version)}"
        yield Replayed(partial(_replayed, scenario), group, partial(check, scenario))


def _replayed(scenario: Scenario) -> dict[str, object]:
    try:
        steps = [{} if step is None else _step(step) for step in run(scenario)]
    except KubeletConfigError as error:
        return {"id": scenario.id, "kubelet_error": error.reason, "field": error.field}
    except KubeletCrashError as error:
        return {"id": scenario.id, "kubelet_error": str(error)}
    return {"id": scenario.id, "steps": steps}


def _step(admission: Admission) -> dict[str, object]:
    """One admission, with all possible answers if the kubelet chooses at random."""
    first = admission.outcomes[0].verdict
    result = verdict_to_json(first)
    if first.certainty is not Certainty.EXACT:
        result["certainty"] = first.certainty.value
        result["outcomes"] = [verdict_to_json(o.verdict) for o in admission.outcomes]
    return result


_REPLAYS: Final = {
    "kubelet": Replay(_scenarios, "Agreement with the recorded kubelets", ("file", "kubelet"), COUNTED),
    "dra": DRA,
    "dra-cpu": DRA_CPU,
}
