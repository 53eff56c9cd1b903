"""A bind call of the scheduler extender protocol (k8s.io/kube-scheduler/extender/v1), as Go writes and reads it.

One declaration of a body is its reader or its writer, and its schema in the OpenAPI document.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from extender.wire.parsing import decoded
from extender.wire.replies import about

_Name = Annotated[str, Meta(min_length=1, max_length=253)]
_UID = Annotated[
    str, Meta(min_length=1, max_length=128, description="A pod recreated under the same name has another UID.")
]


class ExtenderBindingArgs(msgspec.Struct, frozen=True):
    """What kube-scheduler sends to bind."""

    PodName: _Name
    PodNamespace: _Name
    PodUID: _UID
    Node: _Name


class ExtenderBindingResult(msgspec.Struct):
    """The reply of bind."""

    Error: Annotated[str, about("Why the pod was not bound. Empty if it was.")]


_ARGS: Final = msgspec.json.Decoder(ExtenderBindingArgs)


def parse_binding(body: bytes) -> ExtenderBindingArgs:
    """Read the body of a bind request. Raises WireError."""
    return decoded(_ARGS, body)


def binding_reply(error: str) -> bytes:
    """The reply, with status 200. *error* empty: the pod is bound."""
    return msgspec.json.encode(ExtenderBindingResult(error))
