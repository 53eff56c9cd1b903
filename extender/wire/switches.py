"""Switches of the replay's rules, as reports, questions and settings name them."""

from collections.abc import Mapping
from typing import Final

from extender.kubelet.rules import SWITCHES
from extender.wire.errors import WireError, shown

NO_SWITCHES: Final[Mapping[str, bool]] = {}


def check_switches(switches: Mapping[str, bool], path: str = "rules") -> None:
    """Refuse a switch that the replay does not know: ignoring it would make the replay wrong without any sign.

    Raises:
        WireError: it names the switch and the known ones.
    """
    for name in sorted(set(switches) - SWITCHES):
        raise WireError(f"{path}.{shown(name)[1:-1]}", f"unknown rule; known rules are {', '.join(sorted(SWITCHES))}")


def switches_from_text(text: str) -> dict[str, bool]:
    """Switches in one line, such as `distribute_inside_hint,spread_by_topology=false`. Empty: none.

    Raises:
        ValueError: the form is wrong, or a switch is repeated or unknown.
    """
    switches: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if (equals and value not in ("true", "false")) or name in switches:
            raise ValueError(f"{part!r}: each switch is NAME, NAME=true or NAME=false, and is given once")
        if name not in SWITCHES:
            raise ValueError(f"{name!r} is not a switch; known are {', '.join(sorted(SWITCHES))}")
        switches[name] = value != "false"
    return switches
