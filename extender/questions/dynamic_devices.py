"""A device of a DRA driver, as kube-scheduler allocates it. No kubelet manager knows it."""

from typing import Final, NamedTuple

CPU_DRIVER: Final = "dra.cpu"
"""The driver that allocates CPUs by claims."""


class DynamicDevice(NamedTuple):
    """One device of a node. `claim`: NAMESPACE/NAME, "": free.

    `numa`: the NUMA nodes that it is local to, as raw bits; 0: the driver does not say.
    """

    driver: str
    pool: str
    name: str
    numa: int = 0
    claim: str = ""

    @property
    def is_cpus(self) -> bool:
        """Whether it stands for CPUs."""
        return self.driver == CPU_DRIVER

    @property
    def key(self) -> tuple[str, str, str]:
        """What a claim names it by."""
        return self.driver, self.pool, self.name
