"""etcd stops and goes on, for 10 s, under a light load: waits of pods beside those with an echo extender.

Left out: what `beside_echo` leaves out.
"""

import threading
import time

from tests.live.binaries import Binaries
from tests.live.cluster import Cluster, Plan, Say
from tests.live.processes import Program
from tests.live.report import Findings
from tests.live.scenes.beside_echo import Fault, play_beside_echo

SLOW_SECONDS, STOP_SECONDS, GO_SECONDS = 10.0, 0.8, 0.2


def _slow(running: Cluster, _extender: Program, enough: threading.Event) -> None:
    until = time.monotonic() + SLOW_SECONDS
    while time.monotonic() < until and not enough.is_set():
        running.plane.etcd.freeze()
        time.sleep(STOP_SECONDS)
        running.plane.etcd.thaw()
        time.sleep(GO_SECONDS)


FAULT = Fault(name="slow-etcd", what="slow etcd", make=_slow, excused=False)


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """See `beside_echo`."""
    return play_beside_echo(FAULT, binaries, plan, say)
