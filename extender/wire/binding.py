"""The bind verb's bodies (k8s.io/kube-scheduler/extender/v1: ExtenderBindingArgs, ExtenderBindingResult)."""

from typing import Annotated, Final

import msgspec
import orjson
from msgspec import Meta
from pydantic import BaseModel

from extender.wire.typed import decoded
from extender.wire.validation import doc

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


class ExtenderBindingResult(BaseModel):
    """The reply of bind."""

    Error: Annotated[str, doc("Why the pod was not bound. Empty if it was.")]


_ARGS: Final = msgspec.json.Decoder(ExtenderBindingArgs)


def parse_binding(body: bytes) -> ExtenderBindingArgs:
    """Read the body of a bind request. Raises WireError."""
    return decoded(_ARGS, body)


def binding_reply(error: str) -> bytes:
    """The reply, with status 200. *error* empty: the pod is bound."""
    return orjson.dumps({"Error": error})
