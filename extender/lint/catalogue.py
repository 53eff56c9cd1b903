"""Findings, and the rules. `rules.toml` has the sentences of each rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Final

import msgspec

from extender.lint.documents import Located


class Severity(StrEnum):
    """`error`: admission is not guaranteed. `warning`: it will cause trouble. `info`: good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Rule(msgspec.Struct, frozen=True):
    """One pitfall. `problem`: the pitfall in one sentence. `why` and `fix`: see `Finding`.

    Words in braces are facts of a finding. Of several sentences, the first one whose facts are all known is used.
    """

    severity: Severity
    problem: str
    why: str | list[str]
    fix: str | list[str]


RULES: Final[Mapping[str, Rule]] = msgspec.toml.decode(
    files("extender.lint").joinpath("rules.toml").read_bytes(), type=dict[str, Rule]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`path`: the place in the document. `why`: the consequence here. `fix`: what to do."""

    file: str
    line: int
    path: str
    rule: str
    severity: Severity
    why: str
    fix: str


def found(rule: str, place: Located, **facts: object) -> Finding:
    """A finding of a rule of the catalogue, at a place of a document. *facts*: for its sentences; None: not known."""
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return Finding(
        file=place.file,
        line=place.line,
        path=place.path,
        rule=rule,
        severity=RULES[rule].severity,
        why=_sentence(RULES[rule].why, known),
        fix=_sentence(RULES[rule].fix, known),
    )


def _sentence(sentences: str | Sequence[str], known: Mapping[str, object]) -> str:
    """The first sentence whose facts are all known. Raises KeyError if there is none."""
    *others, last = [sentences] if isinstance(sentences, str) else sentences
    for sentence in others:
        try:
            return sentence.format_map(known)
        except KeyError:
            continue
    return last.format_map(known)
