"""Whatever a slice or a claim says, a replay costs a bounded number of steps, and says so if that is not enough."""

import pytest

from extender.dra.cel import MAX_STEPS as CEL_STEPS
from extender.dra.cel import selector
from extender.dra.errors import CelCompileError, NotReplayedError
from extender.dra.objects import ResourceSlice
from extender.dra.replay import MAX_STEPS
from extender.kubelet.budget import Budget
from extender.wire.dra import device_from_json
from tests.replay.dra.by_hand import answers, claim_of, device, devices_of, exactly, slice_of

HUNDRED = "[" + ",".join("1" * 100) + "]"
DOUBLING = "".join(f"cel.bind(a{i + 1}, a{i} + a{i}, " for i in range(1, 30))
PAIRS = "".join(f"cel.bind(a{i + 1}, [a{i}, a{i}], " for i in range(1, 30))
BOMBS = {
    "nested loops": f"{HUNDRED}.all(a, {HUNDRED}.all(b, {HUNDRED}.all(c, true)))",
    "a text that doubles": f'cel.bind(a1, "x", {DOUBLING}size(a30) > 3{")" * 30}',
    "pairs of pairs": f"cel.bind(a1, [1, 1], {PAIRS}a30 == a30{')' * 30}",
    "a loop in a regular expression": f'"{"a" * 60}b".matches("(a|aa)*$")',
    "choices in a regular expression": f'"{"a" * 60}".matches("{"a?" * 20}b")',
    "parentheses": "(" * 5000 + "true" + ")" * 5000,
    "many operands": "||".join(["false"] * 600),
    "negations": "!" * 900 + "true",
    "a long chain": "device" + ".a" * 900,
}


def many(number: int) -> list[ResourceSlice]:
    return [
        slice_of([device(f"gpu{j}") for j in range(i, i + 128)], f"slice{i:05}", pool={
            "name": "pool", "generation": 1, "resourceSliceCount": -(-number // 128)})
        for i in range(0, number, 128)
    ]  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_an_expression_that_costs_too_much_is_not_known(name: str) -> None:
    one = device_from_json(device("gpu0"), "device")

    with pytest.raises(NotReplayedError):
        selector(BOMBS[name]).holds("gpu.example.com", one, Budget(2 * CEL_STEPS))


def test_ten_thousand_devices_are_looked_at_once_each() -> None:
    slices = many(10_000)

    (found,) = answers(slices, [claim_of(exactly(count=8))], steps=100_000)
    (none,) = answers(slices, [claim_of(exactly(count=8))], selector="false", steps=100_000)

    assert (found.verdict, len(devices_of(found))) == ("allocated", 8)
    assert none.verdict == "none"


def test_expensive_expressions_use_up_the_steps_of_the_search() -> None:
    loop = f"{HUNDRED}.all(x, {HUNDRED}.all(y, x + y > 0)) && false"

    (answer,) = answers(many(10_000), [claim_of(exactly())], selector=loop)

    assert answer.verdict == "unknown"
    assert str(MAX_STEPS) in answer.reason or str(CEL_STEPS) in answer.reason


def test_a_search_without_end_stops() -> None:
    devices = [device(f"gpu{i}", attributes={"half": {"int": i % 2}}) for i in range(60)]
    wanted = [{"matchAttribute": "gpu.example.com/half"}]

    (answer,) = answers([slice_of(devices)], [claim_of(exactly(count=31), constraints=wanted)], steps=50_000)

    assert (answer.verdict, answer.reason) == ("unknown", "the replay was stopped after 50000 steps")


def test_a_search_that_is_too_deep_for_python_is_not_tried() -> None:
    claims = [claim_of(exactly(count=32), name=f"claim{i}") for i in range(9)]

    (answer,) = answers(many(512), claims)

    assert answer.verdict == "unknown"
    assert "levels deep" in answer.reason


def test_the_deepest_search_that_is_tried_is_within_the_limits_of_python() -> None:
    claims = [claim_of(exactly(count=32), name=f"claim{i}") for i in range(6)]
    claims.append(claim_of(exactly(count=26), name="last"))

    (answer,) = answers(many(512), claims, selector="!(" * 30 + "true" + ")" * 30)

    assert (answer.verdict, len(devices_of(answer))) == ("allocated", 218)


def test_too_many_orders_of_pools_are_not_known() -> None:
    slices = [
        slice_of([device("gpu0")], f"s{i}", pool={"name": f"p{i}", "generation": 1, "resourceSliceCount": 1})
        for i in range(9)
    ]

    (answer,) = answers(slices, [claim_of(exactly())], version="1.35.2")

    assert answer.verdict == "unknown"


@pytest.mark.parametrize("text", ["(", "a b", "device.", '"open', "1 +", "device.driver ==", "[1, 2"])
def test_what_is_not_cel_is_a_compile_error(text: str) -> None:
    with pytest.raises((CelCompileError, NotReplayedError)):
        selector(text)
