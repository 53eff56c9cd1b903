"""Arithmetic of merits on ints, and on arrays of ints of any size: one formula for one node and for thousands."""

from collections.abc import Sequence
from functools import reduce
from math import isqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Amounts = NDArray[np.object_]
"""Ints of any size: bytes are squared, which 64 bits do not hold."""
Amount = Any
"""An int, or `Amounts` with one for each node."""
_ISQRT: Final = np.frompyfunc(isqrt, 1, 1)


def greatest(values: Sequence[Amount]) -> Amount:
    """The greatest value, of each node; 0 if there is none."""
    return reduce(_greater, values, 0)


def least(values: Sequence[Amount]) -> Amount:
    """The least of one or more values, for each node."""
    return reduce(_less, values)


def root(value: Amount) -> Amount:
    """The square root, rounded down."""
    return _ISQRT(value) if isinstance(value, np.ndarray) else isqrt(value)


def _greater(one: Amount, other: Amount) -> Amount:
    is_array = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
    return np.maximum(one, other) if is_array else max(one, other)


def _less(one: Amount, other: Amount) -> Amount:
    is_array = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
    return np.minimum(one, other) if is_array else min(one, other)
