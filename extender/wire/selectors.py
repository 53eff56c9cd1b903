"""Selectors of labels as text, as `kubectl -l` writes them."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from extender.wire.errors import WireError
from extender.wire.placement_rules import LabelRequirement

_TERM: Final = re.compile(
    r"\s*(?:(?P<no>!)\s*(?P<absent>[^\s,=!<>()]+)|(?P<key>[^\s,=!<>()]+)"
    r"(?:\s*(?P<sign>==?|!=|[<>])\s*(?P<value>[^\s,=!<>()]*)|\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)
_OPERATORS: Final = {"=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", ">": "Gt", "<": "Lt"}


Selector = Callable[[Mapping[str, str] | None], bool]
"""Whether it selects an object with these labels; None: they are not known."""


def parse_selector(text: str, path: str) -> Selector:
    """The selector of a text such as `pool in (a, b),!virtual`; an empty one selects everything.

    Others select no object whose labels are not known. Raises WireError with the rest of the text that is no selector
    (`k8s.io/apimachinery/pkg/labels/selector.go`, Parse).
    """
    found, at = [], 0
    while at < len(text.rstrip()):
        term = _TERM.match(text, at)
        if term is None:
            raise WireError(path, f"{text[at : at + 64].strip()!r} is not a label selector")
        operator = _OPERATORS.get(term["sign"] or term["word"] or "", "DoesNotExist" if term["no"] else "Exists")
        values = term["values"].split(",") if term["word"] else [term["value"] or ""]
        key = term["absent"] or term["key"]
        found.append(LabelRequirement(key=key, operator=operator, values=frozenset(each.strip() for each in values)))
        at = term.end()
    return lambda labels: not found or (labels is not None and all(each.holds(labels) for each in found))
