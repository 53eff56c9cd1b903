"""The extender does nothing for 30 s under a light load: waits of pods beside those with a frozen echo extender.

Left out: what `beside_echo` leaves out, and of each wait the time in which the extender does nothing.
"""

import threading

from tests.live.binaries import Binaries
from tests.live.cluster import Cluster, Plan, Say
from tests.live.processes import Program
from tests.live.report import Findings
from tests.live.scenes.beside_echo import Fault, play_beside_echo

FROZEN_SECONDS = 30.0


def _freeze(_running: Cluster, extender: Program, enough: threading.Event) -> None:
    extender.freeze()
    enough.wait(FROZEN_SECONDS)
    extender.thaw()


FAULT = Fault(name="frozen", what="extender frozen", make=_freeze, patience=90.0, every=0.6)


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """See `beside_echo`."""
    return play_beside_echo(FAULT, binaries, plan, say)
