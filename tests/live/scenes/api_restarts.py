"""The API server killed and started again under a light load: waits of pods beside those with an echo extender.

Two restarts only: after several outages within two minutes the watches of kube-scheduler itself wait up to 30 s for
their next try (client-go's reflector), and pods with either extender wait for them.

Left out: what `beside_echo` leaves out, and of each wait the time without a server. A server takes 3 to 10 s to start
on a busy machine, other times with either extender.
"""

import threading

from tests.live.binaries import Binaries
from tests.live.cluster import Cluster, Plan, Say
from tests.live.processes import Program
from tests.live.report import Findings
from tests.live.scenes.beside_echo import Fault, play_beside_echo

AWAY_SECONDS = 1.0


def _restart(running: Cluster, _extender: Program, enough: threading.Event) -> None:
    server = running.plane.apiserver
    server.kill()
    enough.wait(AWAY_SECONDS)
    server.start()
    running.plane.wait_until_ready()


FAULT = Fault(name="api-restarts", what="restarts of the API server", make=_restart, times=2)


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """See `beside_echo`."""
    return play_beside_echo(FAULT, binaries, plan, say)
