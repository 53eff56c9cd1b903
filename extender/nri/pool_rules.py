"""Why the policy prefers one pool to another: the reasons in the order in which it compares (`policy/pools.go`)."""

from enum import Enum
from typing import Self


class PoolRule(Enum):
    """Why a pool comes after the one that is used.

    `number`: its position in the order. `sentence`: what people read.
    """

    number: int
    sentence: str

    def __new__(cls, value: str, sentence: str) -> Self:  # noqa: D102 - of every Enum with attributes
        rule = object.__new__(cls)
        rule._value_ = value
        rule.number = len(cls.__members__)
        rule.sentence = sentence
        return rule

    USED = "", ""
    CPU = "too-little-cpu", "not enough CPU"
    ISOLATED = "too-few-isolated-cpus", "not enough isolated CPUs"
    AFFINITY = "affinity", "less affinity to other containers"
    HINTS = "hints", "farther from the devices"
    NO_MEMORY = "no-memory", "no memory for it"
    MEMORY_TYPES = "memory-types", "memory of other types"
    MEMORY_SIZE = "memory-size", "less memory in all"
    CPU_LIMIT = "cpu-limit", "less CPU left than its limit"
    BURST_LEVEL = "burst-level", "not the level of unlimitedBurstable"
    MEMORY_NODES = "memory-nodes", "memory of more NUMA nodes"
    CPU_PRIORITY = "cpu-priority", "too few CPUs of its priority"
    DEPTH = "depth", "a wider pool"
    ISOLATED_LEFT = "isolated-left", "fewer isolated CPUs left"
    CPU_LEFT = "cpu-left", "less CPU left"
    CONTAINERS = "containers", "more containers there"
    ID = "id", "equal, and later in the order"
