"""Play a recorded scenario on the naive kubelet and name what differs from what the real code answered."""

import json
from random import Random
from typing import Any

from tests.oracle.errors import NaiveKubeletError
from tests.oracle.kubelet import NaiveKubelet


def differences(scenario: dict[str, Any], *, seeds: int = 64) -> list[str]:
    """What differs, for the random device choices that agree longest; empty: the scenario is reproduced."""
    best: list[str] | None = None
    best_step = -1
    for seed in range(seeds):
        step, found = _play(scenario, Random(seed))
        if not found:
            return []
        if step > best_step:
            best, best_step = found, step
        if not scenario["devices"]:
            break
    return best or []


def _play(scenario: dict[str, Any], rng: Random) -> tuple[int, list[str]]:
    """The first step that differs, and how."""
    fails = scenario.get("kubelet_error")
    number = -1
    try:
        kubelet = NaiveKubelet.of(scenario, rng)
        for number, step in enumerate(scenario["steps"]):
            if step["op"] == "start":
                kubelet.start(step["uid"])
            elif step["op"] == "remove":
                kubelet.remove(step["uid"])
            else:
                found = compare(kubelet.admit(step["pod"]), step.get("expect"), set(step.get("varies") or ()))
                if found and not fails:
                    return number, [f"step {number}: {text}" for text in found]
    except NaiveKubeletError as error:
        same = fails is not None and (str(error) == fails or (fails.startswith("panic") and "panic" in str(error)))
        return number, [] if same else [f"step {number}: kubelet error {error}, expected {fails}"]
    return number, [f"no kubelet error, expected {fails}"] if fails else []


def compare(got: object, want: object, varies: set[str], path: str = "") -> list[str]:
    """Differences of two JSON values, without what varies."""
    if path in varies:
        return []
    if isinstance(got, dict) and isinstance(want, dict):
        found = []
        for key in sorted({*got, *want}):
            below = f"{path}.{key}" if path else key
            if below in varies or (key not in want and _varies_below(varies, below)):
                continue
            if key not in got or key not in want:
                found.append(f"{below}: got {got.get(key, 'nothing')}, want {want.get(key, 'nothing')}")
            else:
                found += compare(got[key], want[key], varies, below)
        return found
    if path.rpartition(".")[2] == "memory" or "device_numa" in path:
        got, want = _in_any_order(got), _in_any_order(want)
    return [] if got == want else [f"{path}: got {got}, want {want}"]


def _varies_below(varies: set[str], path: str) -> bool:
    return any(name.startswith(path + ".") for name in varies)


def _in_any_order(values: object) -> list[str]:
    assert isinstance(values, list)
    return sorted(json.dumps(value, sort_keys=True) for value in values)
