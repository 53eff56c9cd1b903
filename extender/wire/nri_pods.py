"""What the NRI topology-aware policy reads of a pod's metadata.

Rules of this file
- The texts of labels and annotations are kept, up to `KEPT.text_bytes` of a pod together. If there are more, none is
  kept.
- Annotations are parsed when a node with the policy needs them (`LateAnnotations`), with one budget for all of a pod.
- A pod that exceeds one of these limits gets no verdict on nodes with the policy. On other nodes nothing changes.
- So a pod keeps at most `KEPT.text_bytes` of text, and about 0.2 MiB of what was parsed of it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from extender.nri.affinity import AFFINITY_KEY, ANTI_AFFINITY_KEY
from extender.nri.objects import (
    KEY_SUFFIX,
    MALFORMED,
    NO_METADATA,
    LateAnnotations,
    Metadata,
    ParsedAnnotations,
    Resources,
)
from extender.wire.documents import DocumentError, build_documents
from extender.wire.errors import WireError
from extender.wire.parsing import load_json, parse_milli

RESOURCES_ANNOTATION: Final = "noderesource.dev/resources"
DOMAIN: Final = "resource-policy.nri.io"
_YAML_KEYS: Final = frozenset({
    AFFINITY_KEY, ANTI_AFFINITY_KEY, f"cold-start{KEY_SUFFIX}", f"irq-affinity{KEY_SUFFIX}",
    *(f"{kind}.topologyhints{KEY_SUFFIX}" for kind in ("allow", "deny", "test")),
})  # fmt: skip
"""The annotations that the policy reads as YAML, without `/pod` and `/container.NAME`."""


class AnnotationBudget(NamedTuple):
    """Limits for all labels and annotations of one pod together.

    `text_bytes`: the size of keys and values in UTF-8. `values`: how many the YAML and JSON in annotations has, an
    alias counted each time it is used. Reading one takes about 5 microseconds.
    """

    text_bytes: int
    values: int


KEPT: Final = AnnotationBudget(text_bytes=16 << 10, values=1000)
"""The limits of every pod. The annotations of a real pod have a few hundred bytes."""


_STEPS_A_BYTE: Final = 4
"""Steps of a replay's budget. Longer annotations are so parsed off the event loop, where only short replays run."""
_BYTES_A_VALUE: Final = 8
"""In a text that is not YAML this many bytes count as one value, because it is not known how far it was read."""


def metadata_of(labels: object, annotations: object, budget: AnnotationBudget = KEPT) -> Metadata:
    """The metadata in `metadata.labels` and `metadata.annotations` of a pod; what is not a text is left out."""
    ours = {
        key: text
        for key, text in (annotations.items() if isinstance(annotations, dict) else ())
        if isinstance(text, str) and (DOMAIN in key or key == RESOURCES_ANNOTATION)
    }
    known = {k: v for k, v in labels.items() if isinstance(v, str)} if isinstance(labels, dict) else {}
    if not ours and not known:
        return NO_METADATA
    labels_bytes, ours_bytes = _bytes_of(known), _bytes_of(ours)
    if labels_bytes + ours_bytes > budget.text_bytes:
        field = "labels" if labels_bytes > ours_bytes else "annotations"
        reason = f"{labels_bytes + ours_bytes} bytes of labels and annotations, more than {budget.text_bytes}"
        return Metadata(excess=f"metadata.{field}: {reason}: the NRI policy's decision is not known")
    if not ours:
        return Metadata(labels=known)
    late = LateAnnotations(partial(_parsed, ours, budget.values), ours_bytes * _STEPS_A_BYTE)
    return Metadata(labels=known, annotations=ours, late=late)


def _bytes_of(texts: Mapping[str, str]) -> int:
    return sum(len(part.encode(errors="surrogatepass")) for pair in texts.items() for part in pair)


def _parsed(annotations: Mapping[str, str], max_values: int) -> ParsedAnnotations:
    """The values of a pod's annotations, which may have *max_values* parts together."""
    documents: dict[str, object] = {}
    left = max_values
    for key, text in annotations.items():
        if text in documents or key.partition("/container.")[0].removesuffix("/pod") not in _YAML_KEYS:
            continue
        try:
            first = next(build_documents(text.removeprefix("\ufeff"), left), None)
        except (DocumentError, UnicodeEncodeError) as error:
            if isinstance(error, DocumentError) and error.is_excess:
                return _excess(key, max_values)
            documents[text] = MALFORMED
            left -= len(text) // _BYTES_A_VALUE
        else:
            documents[text] = None if first is None else first.root
            left -= 0 if first is None else first.count
        if left < 0:
            return _excess(key, max_values)
    resources = _annotated_resources(annotations.get(RESOURCES_ANNOTATION))
    if sum(3 + len(each.requests) + len(each.limits) for each in resources.values()) > left:
        return _excess(RESOURCES_ANNOTATION, max_values)
    return ParsedAnnotations(documents, resources)


def _excess(key: str, max_values: int) -> ParsedAnnotations:
    reason = f"metadata.annotations.{key[:200]}: more than {max_values} values in all annotations, or nested too deep"
    return ParsedAnnotations({}, {}, f"{reason}: the NRI policy's decision is not known")


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
