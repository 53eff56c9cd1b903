"""`numa-extender replay --policy dra` and `dra-cpu`, as a person calls them."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from extender.cli.replay import replay
from extender.kubelet.sets import iter_bits, parse_list
from tests.replay.dra.vectors import VECTORS, lines


def call(policy: str, *arguments: str, document: object = None) -> Result:
    return CliRunner().invoke(replay, ["--policy", policy, *arguments], input=json.dumps(document))


def world(theme: str = "exact-count") -> dict[str, Any]:
    return next(line for line in lines("dra-1.36") if line["theme"] == theme and len(line["results"]) > 1)


def test_a_world_in_is_its_answers_out() -> None:
    document = world()
    recorded, _ = document.pop("results"), document.pop("selectors")

    answer = json.loads(call("dra", document={**document, "version": "1.36.2"}).stdout)

    assert answer["id"] == document["id"]
    names = ("node", "verdict", "allocations")
    assert [{name: each[name] for name in names if name in each} for each in answer["results"]] == [
        {name: each[name] for name in names if name in each} for each in recorded
    ]


def test_several_possible_answers_are_all_given() -> None:
    documents = (line for line in lines("dra-1.36") if any("others" in each for each in line["results"]))

    for document in islice(documents, 3):
        answer = json.loads(call("dra", document=document).stdout)

        for recorded, each in zip(document["results"], answer["results"], strict=True):
            for other in recorded.get("others", ()):
                assert other["verdict"] in [possible["verdict"] for possible in each["any"]]


def test_a_version_that_cannot_be_replayed_is_unknown_with_the_reason() -> None:
    answer = json.loads(call("dra", document={**world(), "version": "1.38.1"}).stdout)

    assert {each["verdict"] for each in answer["results"]} == {"unknown"}
    assert "1.34 to 1.36" in answer["results"][0]["reason"]


def test_a_series_of_claims_gets_its_cpus() -> None:
    series = next(lines("dra-cpu-grouped"))
    claims = [{"ends_claim": each["ends_claim"], "requests": each["results"]} for each in series["claims"]]

    answer = json.loads(call("dra-cpu", document={**series, "claims": claims}).stdout)

    assert answer["claims"] == [_answer(each) for each in series["claims"]]


def test_check_prints_a_table_and_the_first_differences(tmp_path: Path) -> None:
    wrong = world()
    wrong["results"][0]["verdict"] = "node-error"
    path = tmp_path / "worlds.jsonl"
    path.write_text(json.dumps(wrong))

    agreeing = call("dra-cpu", "--check", str(VECTORS / "dra-cpu-grouped.jsonl.xz"))
    differing = call("dra", "--check", str(path))

    assert agreeing.exit_code == 0
    assert "4778" in agreeing.stdout
    assert differing.exit_code == 1
    assert f"{wrong['id']}: {wrong['results'][0]['node']} with 1.36.2" in differing.stdout


@pytest.mark.parametrize(
    ("policy", "change", "message"),
    [
        ("dra", {"gates": "2.0"}, "gates: a gate with true or false"),
        ("dra", {"allocate": ["default/none"]}, "allocate[0]: 'default/none' is not the name of a claim"),
        ("dra", {"resourceSlices": [{"metadata": {"name": "s"}}]}, "resourceSlices[0].spec: missing"),
        ("dra", {"nodes": {}}, "nodes: {} is not a list"),
        ("dra-cpu", {"groupBy": "core"}, "groupBy: one of numanode, socket is expected"),
        ("dra-cpu", {"driver": "new"}, "driver: 'new' is no version of dra-driver-cpu, such as 0.2.0"),
        ("dra-cpu", {"cpus": []}, "cpus: a machine has at least one CPU"),
        ("dra-cpu", {"reserved": "x"}, "reserved: "),
        ("dra-cpu", {"claims": [{"results": [{"device": "gpu0", "count": 1}]}]}, "claims: 'gpu0' is no group"),
        ("dra-cpu", {"claims": [{"ends_claim": 0}]}, "claims[0].ends_claim: 0 is not the number of an earlier claim"),
    ],
)
def test_what_cannot_be_read_is_named(policy: str, change: dict[str, Any], message: str) -> None:
    document = world() if policy == "dra" else next(lines("dra-cpu-grouped"))

    result = call(policy, document={**document, **change})

    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize("driver", ["0.1.0", "v0.2.0"])
def test_before_0_3_a_claim_with_cpus_that_are_not_free_is_not_refused(driver: str) -> None:
    """dra_hooks.go of 0.1.0 and 0.2.0 adds the allocation without a look at the others. No answer is recorded."""

    def cpus_of(claim: Any) -> frozenset[int]:  # noqa: ANN401
        return frozenset(iter_bits(parse_list(claim["cpus"])))

    overlap = {"error": "overlapping CPU assignment", "cpus": ""}
    series = next(each for each in lines("dra-cpu-grouped") if overlap in [_answer(c) for c in each["claims"]])
    number = [_answer(each) for each in series["claims"]].index(overlap)
    first = series["claims"][: number + 1]
    claims = [{"ends_claim": each["ends_claim"], "requests": each["results"]} for each in first]

    answers = json.loads(call("dra-cpu", document={**series, "claims": claims, "driver": driver}).stdout)["claims"]

    assert answers[:-1] == [_answer(each) for each in first[:-1]], "the same up to there"
    ended = {each["ends_claim"] for each in first}
    held = frozenset[int]().union(*(cpus_of(each) for i, each in enumerate(answers[:-1]) if i not in ended))
    reserved = frozenset(iter_bits(parse_list(series["reserved"])))
    assert "error" not in answers[-1]
    assert cpus_of(answers[-1]) & (held | reserved)


def _answer(claim: dict[str, Any]) -> dict[str, Any]:
    return {name: claim[name] for name in ("cpus", "error") if name in claim}
