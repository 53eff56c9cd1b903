"""Rules of DRA, each by a small example."""

import pytest

from extender.dra.cel import selector
from extender.dra.errors import CelCompileError, CelError, NotReplayedError
from extender.dra.quantity import quantity, whole
from extender.dra.rules import UnknownAllocatorError, rules_for
from extender.kubelet.budget import Budget
from extender.wire.dra import device_from_json
from tests.replay.dra.by_hand import answers, claim_of, device, devices_of, exactly, slice_of

GPUS = [device("gpu0"), device("gpu1"), device("gpu2")]


def test_the_first_free_devices_in_the_order_of_the_slice_are_taken() -> None:
    (answer,) = answers(
        [slice_of(GPUS)], [claim_of(exactly(count=2))], selector='device.attributes["gpu.example.com"].index > 0'
    )

    assert devices_of(answer) == ["gpu1", "gpu2"]


def test_no_solution_is_no_error_and_a_missing_class_is_one() -> None:
    (none,) = answers([slice_of(GPUS)], [claim_of(exactly(count=4))])
    (error,) = answers([slice_of(GPUS)], [claim_of(exactly(deviceClassName="other"))])

    assert (none.verdict, error.verdict) == ("none", "error")
    assert "no device class 'other'" in error.reason


def test_before_1_36_pools_come_in_any_order() -> None:
    pools = [
        slice_of(GPUS[i : i + 1], f"s{i}", pool={"name": f"p{i}", "generation": 1, "resourceSliceCount": 1})
        for i in range(2)
    ]

    old = answers(pools, [claim_of(exactly())], version="1.34.9")
    new = answers(pools, [claim_of(exactly())])

    assert sorted(name for each in old for name in devices_of(each)) == ["gpu0", "gpu1"]
    assert [devices_of(each) for each in new] == [["gpu0"]]


def test_before_1_36_one_pool_of_one_slice_is_exact() -> None:
    other = slice_of(GPUS, "s", driver="nic.example.com")
    mine = 'device.driver == "gpu.example.com"'

    (answer,) = answers([slice_of(GPUS), other], [claim_of(exactly())], version="1.35.6", selector=mine)

    assert devices_of(answer) == ["gpu0"]


def test_slices_that_disagree_on_their_number_have_two_answers() -> None:
    slices = [
        slice_of(GPUS[i : i + 1], f"s{i}", pool={"name": "p", "generation": 1, "resourceSliceCount": 2 + i})
        for i in range(2)
    ]

    found = answers(slices, [claim_of(exactly())])

    assert [each.verdict for each in found] == ["allocated", "none"]


@pytest.mark.parametrize("version", ["1.33.4", "1.37.0", "2.0", "", "main"])
def test_other_versions_are_not_known(version: str) -> None:
    with pytest.raises(UnknownAllocatorError):
        rules_for(version)


def test_gates_of_1_36_can_be_named_and_those_of_older_versions_are_the_default() -> None:
    assert not rules_for("v1.36.3+k3s1", {"DRADeviceTaints": False}).device_taints
    assert rules_for("1.35.0", {"DRADeviceTaints": False}) == rules_for("1.35.0")
    with pytest.raises(UnknownAllocatorError, match="other gates"):
        rules_for("1.35.0", {"DRADeviceTaints": True})
    with pytest.raises(UnknownAllocatorError, match="never compared"):
        rules_for("1.34.9", "1.36")


@pytest.mark.parametrize(("units", "text"), [(5 << 30, "5Gi"), (10**9, "1000000000"), (1000, "1k"), (3, "3"), (0, "0")])
def test_a_computed_amount_is_written_in_powers_of_1024(units: int, text: str) -> None:
    assert whole(units).text == text
    assert quantity(text).nano == whole(units).nano


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ('device.attributes["gpu.example.com"].missing == 1 || true', "true"),
        ('device.attributes["gpu.example.com"].missing == 1', "error"),
        ('"gpu.example.com" in device.attributes && !("x" in device.attributes)', "true"),
        ('semver("1.2.3-rc.1").isLessThan(semver("1.2.3"))', "true"),
        ('quantity("1500m").asInteger() == 2', "error"),
        ('quantity("1Ki") == quantity("1024")', "true"),
        ("9223372036854775807 + 1 > 0", "error"),
        ("-7 / 2 == -3 && -7 % 2 == -1", "true"),
        ('"gpu7".matches("^gpu[0-9]$")', "true"),
        ("[1, 2].exists(x, 1 / (x - 2) == -1)", "true"),
        ("[1, 2].all(x, 1 / (x - 2) == -1)", "error"),
        ("device.driver == 1", "compile-error"),
        ("device.nothing", "compile-error"),
        ("size(device.driver)", "compile-error"),
        ('cidr("10.0.0.0/8").containsIP("10.1.1.1")', "unknown"),
        ('timestamp("2026-01-01T00:00:00Z") == null', "unknown"),
        ('"x".matches("(?i)X")', "unknown"),
        ('semver("1.0.0") in ["1.0.0"]', "unknown"),
        ('[1.5].exists(x, string(x) == "1.5")', "unknown"),
        ('["2"].exists(x, double(x) == 2.0)', "unknown"),
        ("[true][0.0]", "unknown"),
        (".5 < 1.0", "unknown"),
        ('b"x" == b"x"', "unknown"),
        ("google.protobuf.Int64Value{value: 1} == 1", "unknown"),
    ],
)
def test_expressions(expression: str, result: str) -> None:
    one = device_from_json(device("gpu0"), "device")
    try:
        found = str(selector(expression).holds("gpu.example.com", one, Budget(10_000))).lower()
    except CelCompileError:
        found = "compile-error"
    except CelError:
        found = "error"
    except NotReplayedError:
        found = "unknown"

    assert found == result


def test_list_attributes_make_every_expression_fail_without_the_gate() -> None:
    listed = device("gpu0", attributes={"numaNode": {"ints": [0, 1]}})

    (answer,) = answers([slice_of([listed])], [claim_of(exactly())])

    assert answer.verdict == "error"
    assert "numaNode" in answer.reason
