"""The annotation with the predicted placement: what it shows, and when it shows nothing."""

import asyncio
import json
from dataclasses import replace

import pytest

from extender.cluster.node_projection import Prediction
from extender.config.settings import Settings
from extender.kubelet.verdict import Admitted, Placement, Provider, Reason, Rejected
from extender.scheduling.placement_annotation import ANNOTATION, MAX_BYTES, placement_annotation
from tests.reports import sample
from tests.world.cluster import World

NODE = sample("node-a")
ON_NODE_0 = Admitted(placements={"app": Placement(affinity=0b01, preferred=True, cpus=0b1100)})
ON_NODE_1 = Admitted(placements={"app": Placement(affinity=0b10, preferred=True, cpus=0b11 << 16)})
NOT_PLACED = Admitted(placements={"app": Placement(affinity=None, preferred=True)})
REFUSED = Rejected(reason=Reason.TOPOLOGY_AFFINITY, message="", provider=Provider.TOPOLOGY)
PREDICTED = Prediction(NODE.kubelet, NODE.state, (ON_NODE_0,), complete=True)


def test_a_bound_pod_shows_where_its_kubelet_will_place_it() -> None:
    world = World("node-a", settings=Settings(placement_annotations="on"))

    async def story() -> None:
        await world.describe("p", 2)
        await world.bind_named("p")

    asyncio.run(story())
    shown = json.loads(world.api.bindings[0].annotations[ANNOTATION])
    predicted = world.service.known.nodes.pods_of("node-a").projection.prediction("uid-p")
    assert predicted is not None
    (verdict,) = predicted.verdicts
    assert isinstance(verdict, Admitted)
    container = shown["containers"]["app"]
    assert (shown["certainty"], shown["alignment"]) == ("exact", "aligned")
    assert (container["numa"], container["alignment"]) == ([0], "aligned")
    first, last = (int(cpu) for cpu in container["cpus"].replace("-", ",").split(","))
    assert 1 << first | 1 << last == verdict.placements["app"].cpus


def test_without_the_setting_a_binding_has_no_annotation() -> None:
    world = World("node-a")

    async def story() -> None:
        await world.describe("p", 2)
        await world.bind_named("p")

    asyncio.run(story())
    assert [dict(binding.annotations) for binding in world.api.bindings] == [{}]


@pytest.mark.parametrize(
    ("predicted", "shown"),
    [
        (PREDICTED._replace(verdicts=(ON_NODE_0, ON_NODE_1)), {"certainty": "possible"}),
        (PREDICTED._replace(complete=False), {"certainty": "possible"}),
        (PREDICTED._replace(verdicts=(ON_NODE_0, REFUSED)), None),
        (PREDICTED._replace(verdicts=(REFUSED,)), None),
        (PREDICTED._replace(verdicts=(NOT_PLACED,)), None),
    ],
    ids=["two placements", "not all placements", "may be refused", "refused", "not placed"],
)
def test_what_is_not_determined_is_not_shown(predicted: Prediction, shown: object) -> None:
    text = placement_annotation(predicted)

    assert (json.loads(text) if text else None) == shown


def test_equal_outcomes_are_one_placement() -> None:
    shown = json.loads(placement_annotation(PREDICTED._replace(verdicts=(ON_NODE_0, replace(ON_NODE_0)))))

    assert shown["containers"]["app"]["cpus"] == "2-3"


def test_a_text_that_is_too_long_has_no_containers() -> None:
    many = {f"container-{i}": ON_NODE_0.placements["app"] for i in range(MAX_BYTES // 64)}
    text = placement_annotation(PREDICTED._replace(verdicts=(Admitted(placements=many),)))

    assert json.loads(text) == {"certainty": "exact", "alignment": "aligned"}
