"""Field and label selectors, compiled once a request.

Fields are the few that the real server indexes for pods, events and names; labels are equality and set terms.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.fakes.k8s.resources import ApiProblem


class Fields(NamedTuple):
    """What field selectors may ask of an object; empty where the object has none."""

    name: str
    namespace: str
    node: str
    phase: str
    scheduler: str
    nominated: str
    reason: str


_FIELDS: Final = {
    "metadata.name": "name",
    "metadata.namespace": "namespace",
    "spec.nodeName": "node",
    "status.phase": "phase",
    "spec.schedulerName": "scheduler",
    "status.nominatedNodeName": "nominated",
    "reason": "reason",
}
_SET_TERM: Final = re.compile(r"\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*")


@dataclass(frozen=True, slots=True)
class Selector:
    """Which objects a request is about. `node`: the only node that can match, for dispatch; None when several can."""

    namespace: str
    fields: tuple[tuple[str, bool, str], ...]
    labels: tuple[tuple[str, str, tuple[str, ...]], ...]

    @property
    def node(self) -> str | None:
        return next((value for name, equal, value in self.fields if name == "node" and equal and value), None)

    @property
    def matches_all(self) -> bool:
        return not (self.namespace or self.fields or self.labels)

    def matches_fields(self, fields: Fields) -> bool:
        if self.namespace and fields.namespace != self.namespace:
            return False
        return all((getattr(fields, name) == value) is equal for name, equal, value in self.fields)

    def matches_labels(self, labels: Mapping[str, str]) -> bool:
        return all(_label_term(labels.get(key), op, values) for key, op, values in self.labels)


def compile_selector(namespace: str, field_selector: str, label_selector: str) -> Selector:
    """The selector of a request; ApiProblem 400 for what the real server would refuse too."""
    return Selector(namespace, tuple(_field_terms(field_selector)), tuple(_label_terms(label_selector)))


def _field_terms(selector: str) -> list[tuple[str, bool, str]]:
    terms = []
    for term in filter(None, selector.split(",")):
        match = re.fullmatch(r"([^!=]+)(!=|==|=)(.*)", term)
        if not match or match[1] not in _FIELDS:
            raise ApiProblem(400, "BadRequest", f"unable to parse field selector {term!r}")
        terms.append((_FIELDS[match[1]], match[2] != "!=", match[3]))
    return terms


def _label_terms(selector: str) -> list[tuple[str, str, tuple[str, ...]]]:
    terms: list[tuple[str, str, tuple[str, ...]]] = []
    for term in filter(None, re.split(r",(?![^(]*\))", selector)):
        if match := _SET_TERM.fullmatch(term):
            terms.append((match[1], match[2], tuple(v.strip() for v in match[3].split(","))))
        elif match := re.fullmatch(r"([^!=]+)(!=|==|=)(.*)", term):
            terms.append((match[1], "notin" if match[2] == "!=" else "in", (match[3],)))
        elif term.startswith("!"):
            terms.append((term[1:], "absent", ()))
        else:
            terms.append((term, "present", ()))
    return terms


def _label_term(value: str | None, op: str, values: tuple[str, ...]) -> bool:
    match op:
        case "in":
            return value in values
        case "notin":
            return value not in values
        case "absent":
            return value is None
        case _:
            return value is not None
