"""The limits of the searches in this room: every limit of `projection`, `steps` and `sudden_exit`, with its reason.

A projection is computed once for each change of a node. Its limits are therefore smaller than those of a question
(`replay.branches`: 64 states, 512 replays). `SEARCH_STEPS` limits a projection as a whole. The others are reached
before, where more states or orders would say no more than that the node is uncertain.
"""

from typing import Final

from extender.kubelet import budget

SEARCH_STEPS: Final = 250_000
"""Steps in which a projection must find all possible states; about a microsecond each. Beyond it follows one order."""
LAST_STEPS: Final = 100_000
"""Steps after which a projection that follows one order stops, with what it has found."""
LOOP_STEPS: Final = 10_000
"""New steps of one projection that the event loop waits for; another thread does what takes longer."""
LOOP_STEPS_OF_ALL: Final = 100_000
"""New steps of all nodes that have changed since the last read, in which the event loop computes them."""
MAX_STATES: Final = 32
"""How many states of one node are followed. A verdict on the node costs a replay for each."""
MAX_ORDERS: Final = 16
"""How many sets of pods of one size are tried as those that the kubelet admitted first."""
MAX_IN_FLIGHT: Final = 256
"""Pods in flight of which the possible orders are compared. A kubelet admits 110 by default."""
MAX_MAYBE_GONE: Final = 4
"""Pods that may be gone (or started) of which every combination is followed."""

MAX_STEPS: Final = 4096
"""How many results are kept for one node; then all are dropped. A projection of a few pods has a few dozen."""
STEPS_A_REPLAY: Final = budget.MAX_STEPS // budget.REPLAYS
"""Steps of the replay's budget for each replay of one admission. All states of a node share its replays and steps."""
MAX_STEPS_OF_ONE: Final = 200_000
"""Steps of the replay's budget for one admission. The longest from one state in the recordings takes 90,000."""
MAX_WEIGHT: Final = 1_000_000
"""Steps after which the results that are kept for one node are dropped: they stand for memory as well."""
STEP: Final = 20
"""What the smallest step costs."""
STEPS_OF_AN_ADMISSION: Final = 200
"""What an admission costs beside the steps that its replay counts."""
STEPS_OF_NRI: Final = 2
"""What a step of the replay costs under the NRI policy: about two microseconds."""
