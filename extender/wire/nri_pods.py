"""What the NRI topology-aware policy reads of a pod's metadata.

Annotations of the policy are short. A text is parsed once, however many pods have it. Where one is longer than
`MAX_TEXT` characters, the pod gets no verdict on nodes with the policy.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from extender.replay.nri.objects import MALFORMED, NO_METADATA, Metadata, Resources
from extender.wire.documents import MAX_VALUES, DocumentError, build_documents
from extender.wire.errors import WireError
from extender.wire.quantity import parse_milli
from extender.wire.validation import load_json

RESOURCES_ANNOTATION: Final = "noderesource.dev/resources"
DOMAIN: Final = "resource-policy.nri.io"
MAX_TEXT: Final = 16_384


def metadata_of(labels: object, annotations: object, *, max_text: int = MAX_TEXT) -> Metadata:
    """The metadata in `metadata.labels` and `metadata.annotations` of a pod; what is not a text is left out."""
    ours = {
        key: text
        for key, text in (annotations.items() if isinstance(annotations, dict) else ())
        if isinstance(text, str) and (DOMAIN in key or key == RESOURCES_ANNOTATION)
    }
    known = {k: v for k, v in labels.items() if isinstance(v, str)} if isinstance(labels, dict) else {}
    if not ours:
        return Metadata(labels=known) if known else NO_METADATA
    if any(len(text) > max_text for text in ours.values()):
        return Metadata(labels=known, annotations=ours, is_too_long=True)
    return Metadata(
        labels=known,
        annotations=ours,
        documents={text: _yaml(text) for key, text in ours.items() if key != RESOURCES_ANNOTATION},
        annotated_resources=_annotated_resources(ours.get(RESOURCES_ANNOTATION)),
    )


@lru_cache(maxsize=1024)
def _yaml(text: str) -> object:
    """The first document in *text*, which is all that the plugin reads; None if it is empty."""
    try:
        first = next(build_documents(text.removeprefix("\ufeff"), MAX_VALUES), None)
    except (DocumentError, UnicodeEncodeError):
        return MALFORMED
    return None if first is None else first.root


def milli_or_none(text: object) -> int | None:
    """A quantity in thousandths, which can be negative as in Go; None if the text is not a quantity."""
    is_negative = isinstance(text, str) and text[:1] == "-" and text[1:2] != "+"
    try:
        milli = parse_milli(text[1:] if isinstance(text, str) and is_negative else text, "")
    except WireError:
        return None
    return -milli if is_negative else milli


def _annotated_resources(text: str | None) -> Mapping[str, Resources]:
    """The resources in the annotation. Empty if the plugin would not read it."""
    if text is None:
        return {}
    try:
        document = load_json(text.encode())
    except (WireError, UnicodeEncodeError):
        return {}
    fields = _fields(document)
    if fields is None or any(_resources_of(fields.get(kind)) is None for kind in ("containers", "initcontainers")):
        return {}
    return _resources_of(fields.get("containers")) or {}


def _fields(value: object) -> dict[str, object] | None:
    """The fields of an object, by lower case name, as Go reads them; none for null, and None for anything else."""
    if value is None:
        return {}
    return {key.lower(): field for key, field in value.items()} if isinstance(value, dict) else None


def _resources_of(containers: object) -> dict[str, Resources] | None:
    """Requests and limits by container; None if the plugin cannot read them."""
    result = {}
    if not isinstance(containers, dict):
        return None if containers is not None else {}
    for name, value in containers.items():
        fields = _fields(value)
        if fields is None or not isinstance(fields.get("claims") or [], list):
            return None
        requests, limits = _amounts(fields.get("requests")), _amounts(fields.get("limits"))
        if requests is None or limits is None:
            return None
        result[name] = Resources(requests, limits)
    return result


def _amounts(value: object) -> dict[str, int] | None:
    if value is not None and not isinstance(value, dict):
        return None
    result = {}
    for key, quantity in (value or {}).items():
        milli = 0 if quantity is None else milli_or_none(quantity.strip() if isinstance(quantity, str) else quantity)
        if milli is None:
            return None
        result[key] = milli if key == "cpu" else -(-milli // 1000)
    return result
