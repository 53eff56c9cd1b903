"""How much each resource counts in a strategy: `cpu=2,memory=1,vendor.example/gpu=10`."""

import re
from collections.abc import Mapping
from typing import Final

MAX_WEIGHT: Final = 100
UNNAMED_WEIGHT: Final = 1
"""The weight of a resource that the setting does not name."""

_HUGEPAGES: Final = re.compile(r"hugepages-[1-9][0-9]*(?:Ki|Mi|Gi|Ti)")
_DEVICE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class Weights:
    """The weight of every resource: an int from 0 (left out) to `MAX_WEIGHT`; `UNNAMED_WEIGHT` where none is given."""

    __slots__ = ("_named",)

    def __init__(self, named: Mapping[str, int]) -> None:
        self._named: Final = dict(named)

    def __getitem__(self, resource: str) -> int:
        return self._named.get(resource, UNNAMED_WEIGHT)

    @classmethod
    def parse(cls, text: str) -> "Weights":
        """The weights that *text* names; empty: all alike.

        Raises:
            ValueError: not of the form NAME=WEIGHT, a name that is not managed per NUMA node, a weight out of
                range, or a name given twice.
        """
        named: dict[str, int] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            name, equals, number = (part.strip() for part in entry.partition("="))
            if not equals:
                raise ValueError(f"{_shown(entry)} is not of the form NAME=WEIGHT")
            _check_name(name)
            if name in named:
                raise ValueError(f"{name} is given twice")
            named[name] = _weight(name, number)
        return cls(named)


def _check_name(name: str) -> None:
    if name not in ("cpu", "memory") and not _HUGEPAGES.fullmatch(name) and not _DEVICE.fullmatch(name):
        raise ValueError(
            f"{_shown(name)} is not a resource that a kubelet manages per NUMA node; these are cpu, memory, "
            "hugepages-SIZE (hugepages-1Gi) and devices (vendor.example/gpu)"
        )


def _weight(name: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= MAX_WEIGHT:
        return int(text)
    raise ValueError(f"the weight of {name} is an integer from 0 to {MAX_WEIGHT}, not {_shown(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
