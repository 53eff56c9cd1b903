"""The same question has the same answer, byte for byte, in processes that iterate over sets in different orders."""

import os
import subprocess
import sys

from extender.questions.answering import TABLE

ADVICE = [kind for kind, route in TABLE.items() if route.tag == "advice"]
HASH_SEEDS = ("1", "4")


def test_no_advice_depends_on_the_order_of_a_set() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.questions.every_advice"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
        )
        for seed in HASH_SEEDS
    ]
    one, other = (process.communicate()[0].splitlines() for process in running)

    assert [process.returncode for process in running] == [0, 0]
    assert len(one) == len(ADVICE)
    for kind, *answers in zip(ADVICE, one, other, strict=True):
        assert answers[0] == answers[1], kind
