"""Single values of documents: quantities, and switches of rules."""

import json
import shutil
import subprocess
from decimal import ROUND_CEILING, Decimal
from random import Random
from typing import Any, Final

import pytest

from extender.wire.errors import WireError
from extender.wire.parsing import MOST_UNITS, parse_milli, switches_from_text
from extender.wire.pods import pod_from_json
from tests.reports import pod_of

Json = dict[str, Any]
KUBECTL: Final = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
_FACTORS: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal("1e3"),
    "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"), "P": Decimal("1e15"), "E": Decimal("1e18"),
    **{f"{unit}i": Decimal(1 << 10 * power) for power, unit in enumerate("KMGTPE", start=1)},
}  # fmt: skip
NUMBERS = ["1.5", "1073741824.0", "1e3", "1E2", "1.5e-3", "0.0001", "0", "9223372036854775808", "1e-7", "0.1", "null"]
TEXTS = ["1.5", " 4 ", "1e21", "1e100", "1E", "1Ei", ".5", "5.", "+3", "1e3", "100m", "0.5Gi", "1e-12", "12E-1"]
"""JSON numbers as they are written, and texts."""


def decoded(limits: str) -> dict[str, str] | None:
    """The amounts of a JSON object in canonical form; None if kubectl refuses it."""
    document = json.dumps({**pod_of(name="p"), "apiVersion": "v1", "kind": "Pod"})
    document = document.replace(json.dumps(pod_of()["spec"]["containers"][0]["resources"]["limits"]), limits, 1)
    assert KUBECTL is not None
    done = subprocess.run(
        [KUBECTL, "set", "env", "--local", "-f", "-", "A=b", "-o", "json"],
        input=document, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if done.returncode:
        return None
    found: dict[str, str] = json.loads(done.stdout)["spec"]["containers"][0]["resources"]["limits"]
    return found


def milli_of(canonical: str) -> int:
    """A canonical quantity in thousandths, rounded up, with our limit."""
    suffix = canonical.lstrip("+-0123456789.")
    amount = (
        Decimal(canonical) if suffix.startswith("e") else Decimal(canonical.removesuffix(suffix)) * _FACTORS[suffix]
    )
    return min(int((amount * 1000).to_integral_value(ROUND_CEILING)), (MOST_UNITS + 1) * 1000)


@needs_kubectl
def test_every_amount_is_what_kubernetes_decodes() -> None:
    """`cpu: 1.5` and `memory: 1073741824.0` were refused, and with them a whole stream of `helm template`."""
    random = Random(7)
    drawn = [f"{random.uniform(0, 10) ** random.randint(0, 9):.{random.randint(0, 6)}f}" for _ in range(60)]
    written = [*NUMBERS, *drawn, *(json.dumps(text) for text in (*TEXTS, *drawn))]
    limits = "{" + ", ".join(f'"example.com/r{i}": {text}' for i, text in enumerate(written)) + "}"
    canonical = decoded(limits)
    assert canonical is not None

    pod = pod_of()
    pod["spec"]["containers"][0]["resources"] = {"limits": json.loads(limits)}
    (container,) = pod_from_json(pod).containers

    expected = {name: milli_of(text) for name, text in canonical.items()}
    assert {name: amount for name, amount in container.limits_milli.items() if amount != expected[name]} == {}


@needs_kubectl
@pytest.mark.parametrize("text", ["true", '"NaN"', '"1K"', '"1 Gi"', '"\\t4"', '"0x10"', '"1_000"', '""', "[]"])
def test_what_kubernetes_refuses_is_refused(text: str) -> None:
    assert decoded(f'{{"cpu": {text}}}') is None
    with pytest.raises(WireError, match="is not a quantity"):
        parse_milli(json.loads(text), "cpu")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.5, -1, True, None])
def test_numbers_that_are_no_amounts_are_refused(value: object) -> None:
    with pytest.raises(WireError, match="is not a quantity"):
        parse_milli(value, "cpu")


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        ("", {}),
        (" , ", {}),
        ("distribute_inside_hint", {"distribute_inside_hint": True}),
        (
            "distribute_inside_hint = true, smt_check_after_held=false",
            {"distribute_inside_hint": True, "smt_check_after_held": False},
        ),
    ],
)
def test_switches_are_read(text: str, switches: dict[str, bool]) -> None:
    assert switches_from_text(text) == switches


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("minor", "'minor' is not a switch; known are"),
        ("distribute_well", "'distribute_well' is not a switch; known are"),
        ("spread_by_topology=yes", "'spread_by_topology=yes': each switch is NAME"),
        ("spread_by_topology,spread_by_topology=false", "is given once"),
        ("=true", "'' is not a switch"),
    ],
)
def test_what_names_no_switch_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        switches_from_text(text)
