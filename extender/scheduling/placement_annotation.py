"""The annotation of a bound pod that says where its kubelet is predicted to place it.

Rules of this file
- The API server copies the annotations of a Binding into the pod, so that neither a further call nor a further right is
  needed (`pkg/registry/core/pod/storage`, setPodHostAndAnnotations, in all supported versions).
- A placement that is not determined is not shown: the certainty is then `possible`, and there are no containers.
- `containers` is in the form of what-if, see `wire.verdicts`.
"""

from typing import Final

import msgspec

from extender.cluster.node_projection import Prediction
from extender.kubelet.verdict import Admitted, Certainty
from extender.replay.alignment import Alignment, alignment_of_verdict
from extender.replay.creation import whole_placements
from extender.wire.groups import PREFIX
from extender.wire.verdicts import container_placements

ANNOTATION: Final = f"{PREFIX}placement"
MAX_BYTES: Final = 16 * 1024
"""A longer text has no containers. The API server allows 256 KiB for all annotations of a pod."""
_SHOWN: Final = ("alignment", "numa", "cpus", "memory", "devices", "random")


def placement_annotation(predicted: Prediction) -> str:
    """The value of the annotation. Empty if no manager of the kubelet places the pod, or it may refuse it."""
    admitted = [verdict for verdict in predicted.verdicts if isinstance(verdict, Admitted)]
    if not admitted or len(admitted) < len(predicted.verdicts):
        return ""
    first = admitted[0]
    alignment = alignment_of_verdict(predicted.kubelet, first, predicted.state.devices.devices)
    if alignment.alignment is Alignment.NOT_MANAGED:
        return ""
    if not predicted.complete or any(whole_placements(each) != whole_placements(first) for each in admitted):
        return _text({"certainty": Certainty.POSSIBLE.value})
    containers = {
        name: {key: getattr(shown, key) for key in _SHOWN}
        for name, shown in container_placements(whole_placements(first), alignment).items()
    }
    document = {"certainty": first.certainty.value, "alignment": alignment.alignment.value}
    text = _text({**document, "containers": containers})
    return text if len(text) <= MAX_BYTES else _text(document)


def _text(document: object) -> str:
    return msgspec.json.encode(document).decode()
