"""Python's cycle collector in a service of many nodes, in a process of its own."""

import subprocess
import sys

OBJECTS = 300_000
PROGRAM = f"""
import gc
from extender.app import set_up_collector
set_up_collector()
before = gc.get_freeze_count()
kept = [[i] for i in range({OBJECTS})]
young = len(gc.get_objects())
class Cycle: pass
for _ in range(10_000):
    one = Cycle(); one.me = one
left = sum(isinstance(each, Cycle) for each in gc.get_objects())
print(gc.get_freeze_count() - before, young, left)
"""


def test_what_lives_on_is_not_looked_at_again_and_young_cycles_are_collected() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    frozen, young, cycles = map(int, run.stdout.split())

    assert frozen > 0.9 * OBJECTS
    assert young < 0.1 * OBJECTS
    assert cycles < 5_000
