"""Pods whose replay takes long, over real sockets: what they cost is theirs, and every other node is offered."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import orjson
import pytest

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.scheduling.reasons import RefusalReason
from tests.contract.live import Client
from tests.nri_samples import EIGHT, nri_report
from tests.reports import pod_of, report_of, sample

HONEST = [f"node-{i}" for i in range(4)]
NAMES = ["with-policy", *HONEST]
JOINT = ":,," + ",".join(["pod/name"] * 700)
"""A key whose value has 140,000 characters on a node whose pods have long names."""
POLICY = "resource-policy.nri.io"


def affinity(operator: str, values: list[str]) -> Mapping[str, str]:
    match = orjson.dumps({"key": JOINT, "operator": operator, "values": values}).decode()
    return {f"{POLICY}/affinity": f"app: [{{scope: {{key: name, operator: AlwaysTrue}}, match: {match}}}]"}


ATTACKS = {
    "one pattern": affinity("Matches", ["*" + "?" * 7_000]),
    "a pattern that fails late": affinity("Matches", ["*" + "?n" * 3_500 + "x*"]),
    "stars": affinity("Matches", ["*n" * 3_500 + "x"]),
    "a class": affinity("Matches", ["*[" + "a-c" * 2_000 + "]x*"]),
    "many patterns": affinity("MatchesAny", [f"*?n{i}*" for i in range(700)]),
    "many values": affinity("In", [f"v{i}" for i in range(700)]),
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    held = [pod_of(1, "64Mi", name=f"held-{i}-" + "n" * 200) for i in range(40)]
    with serving(make_service(Settings(port=0))) as url, closing(Client(url)) as found:
        found.report(nri_report(NAMES[0], held, hardware=EIGHT))
        for name in HONEST:
            found.report(report_of(sample(name)))
        yield found


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_pod_asks_of_a_nodes_policy_costs_that_pod_alone(client: Client, attack: str) -> None:
    pod = pod_of(2, name="attacker")
    pod["metadata"]["annotations"] = ATTACKS[attack]
    reply: dict[str, Any] = client.filter(pod, *NAMES)
    assert (reply["Error"], set(HONEST) - set(reply["NodeNames"])) == ("", set())
    assert reply["FailedAndUnresolvableNodes"] == {NAMES[0]: RefusalReason.LATE.text}
    alone = client.filter(pod, NAMES[0])
    assert alone["Error"] == ""

    for number in range(3):
        pod = pod_of(1 + number, name=f"{attack}-{number}".replace(" ", "-"))
        assert client.filter(pod, *NAMES)["NodeNames"] == NAMES
