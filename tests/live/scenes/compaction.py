"""Watches that must begin anew: waits of pods beside those with an echo extender, which watches nothing.

The extender is frozen. Meanwhile etcd forgets the versions that its watches know, and the API server is restarted, so
that it does not remember them either. Both watches then get the answer 410.

Left out: what `beside_echo` leaves out, and of each wait the time of the fault.
"""

import threading

from tests.live.binaries import Binaries
from tests.live.cluster import Cluster, Plan, Say
from tests.live.processes import Program
from tests.live.report import Findings
from tests.live.scenes.beside_echo import Fault, play_beside_echo

COMPACT_SECONDS = 4.0
"""The API server lets etcd forget what was before the last interval but one."""
_FLAG = f"--etcd-compaction-interval={COMPACT_SECONDS:g}s"


def _compact(running: Cluster, extender: Program, enough: threading.Event) -> None:
    server = running.plane.apiserver
    if _FLAG not in server.command:
        server.command.append(_FLAG)
    extender.freeze()
    for seconds in (3 * COMPACT_SECONDS, 0.0):
        server.kill()
        server.start()
        running.plane.wait_until_ready()
        enough.wait(seconds)
    extender.thaw()


FAULT = Fault(name="compaction", what="watches that begin anew", make=_compact, patience=90.0, every=0.6)


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """See `beside_echo`."""
    return play_beside_echo(FAULT, binaries, plan, say)
