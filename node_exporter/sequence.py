"""Numbers that order the reports of one boot, across restarts of the exporter and jumps of the clock."""

import time


def next_sequence(last: int) -> int:
    """A number above `last`: milliseconds since boot, suspended time included, or `last` + 1.

    No state has to be kept: a restarted exporter starts above everything that its predecessor sent.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return max(last + 1, time.clock_gettime_ns(clock) // 1_000_000)
