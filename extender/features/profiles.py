"""Reads node profiles. Features use them where a node has not reported.

A profile stands for nodes of a kind until the first node of that kind reports. It is a file with the labels that such
nodes have and the report of one of them: `{"labels": {LABEL: VALUE}, "report": {…}}`, as JSON or YAML.
`numa-node-exporter report` prints such a report.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from extender.cluster.node import Observation
from extender.intake import observation_of
from extender.wire.documents import read_documents
from extender.wire.errors import WireError
from extender.wire.parsing import object_at, text_at
from extender.wire.reports import read_report

SUFFIXES: Final = frozenset({".json", ".yaml", ".yml"})
MAX_PROFILES: Final = 100
MAX_BYTES: Final = 4 * 1024 * 1024


class ProfileError(ValueError):
    """A profile cannot be used. The message names the file, the field and the reason."""


@dataclass(frozen=True, slots=True)
class NodeProfile:
    """`labels`: a node needs all of them. `observed`: has a kubelet and a state."""

    name: str
    labels: Mapping[str, str]
    observed: Observation


def read_profiles(directory: Path) -> tuple[NodeProfile, ...]:
    """The profiles in *directory*, in the order of their file names. Files that start with a dot are skipped.

    Raises:
        ProfileError: the directory or a profile cannot be used.
    """
    try:
        paths = sorted(p for p in directory.iterdir() if p.suffix in SUFFIXES and not p.name.startswith("."))
        if len(paths) > MAX_PROFILES:
            raise ProfileError(f"{directory}: more than {MAX_PROFILES} profiles")
        return tuple(_read(path) for path in paths)
    except OSError as error:
        raise ProfileError(f"{error.filename}: {error.strerror}") from error


def _read(path: Path) -> NodeProfile:
    if path.stat().st_size > MAX_BYTES:
        raise ProfileError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    try:
        documents = read_documents(path.read_bytes(), "")
        if len(documents) != 1:
            raise ProfileError(f"{path}: {len(documents)} documents, expected one")
        document = object_at(documents[0], "profile")
        labels = {
            name: text_at(value, f"labels.{name}")
            for name, value in object_at(document.get("labels"), "labels").items()
        }
        body = orjson.dumps(object_at(document.get("report"), "report"))
    except WireError as error:
        raise ProfileError(f"{path}: {error}") from error
    if not labels:
        raise ProfileError(f"{path}: labels: a profile without labels would stand for every node")
    return NodeProfile(path.name, labels, _observed(path, body))


def _observed(path: Path, body: bytes) -> Observation:
    """What the report of a profile says. *body*: the report, as JSON."""
    try:
        report = read_report(body)
    except WireError as error:
        raise ProfileError(f"{path}: {error.below('report')}") from error
    observed = observation_of(report, body)
    if observed.kubelet is not None and observed.kubelet.runtime is not None:
        raise ProfileError(f"{path}: report: a node with the NRI topology-aware policy is no model for others")
    if not observed.is_replayable:
        first = next((each for each in report.problems if each.severity != "info"), None)
        why = "" if first is None else f": {first.path}: {first.reason}"
        raise ProfileError(f"{path}: report: it is not enough for a verdict{why}")
    return observed
