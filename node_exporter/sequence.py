"""Numbers that order the reports of one boot, across restarts of the exporter and changes of the clock."""

import time


def next_sequence(last: int) -> int:
    """A number above `last`: milliseconds since boot, including suspended time, or `last` + 1.

    No state needs to be stored: a restarted exporter starts above everything that its predecessor sent.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return max(last + 1, time.clock_gettime_ns(clock) // 1_000_000)
