"""The limits of the searches in this room: every limit of `projection`, `steps` and `sudden_exit`, with its reason.

A projection is computed on the event loop, and once for each change of a node. Its limits are therefore smaller than
those of a question (`replay.branches`: 64 states, 512 replays), which another thread answers.
"""

from typing import Final

from extender.replay import budget

MAX_STATES: Final = 32
"""How many states of one node are followed. A verdict on the node costs a replay for each."""
MAX_TRIED: Final = 8 * MAX_STATES
"""States that are compared with each other after one event; equal ones then count once."""
MAX_ORDERS: Final = 16
"""How many sets of pods of one size are tried as those that the kubelet admitted first."""
MAX_ADMISSIONS: Final = 192
"""How many admissions are replayed for one projection; 0.2 to 0.5 ms each."""
MAX_MAYBE_GONE: Final = 4
"""Pods that may be gone (or started) of which every combination is followed. Of more pods only none, each one alone and
all together are followed, and the projection is not complete."""

MAX_STEPS: Final = 4096
"""How many results are kept for one node; then all are dropped. A projection of a few pods has a few dozen."""
STEPS_A_REPLAY: Final = budget.MAX_STEPS // budget.REPLAYS
"""Steps of the replay's budget for each replay of one admission. All states of a node share its replays and steps."""
MAX_STEPS_OF_ONE: Final = 200_000
"""Steps of the replay's budget for one admission. The longest from one state in the recordings takes 90,000."""
