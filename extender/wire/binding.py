"""The bind verb's bodies (k8s.io/kube-scheduler/extender/v1: ExtenderBindingArgs, ExtenderBindingResult)."""

from typing import Annotated, Final

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from extender.wire.validation import Document, doc, parse_json

_NAME: Final = Field(min_length=1, max_length=253)
_UID: Final = Field(min_length=1, max_length=128, description="A pod recreated under the same name has another UID.")


class ExtenderBindingArgs(Document):
    """What kube-scheduler sends to bind."""

    PodName: Annotated[str, _NAME]
    PodNamespace: Annotated[str, _NAME]
    PodUID: Annotated[str, _UID]
    Node: Annotated[str, _NAME]


class ExtenderBindingResult(BaseModel):
    """The reply of bind."""

    model_config = ConfigDict(frozen=True)

    Error: Annotated[str, doc("Why the pod was not bound. Empty if it was.")]


BINDING_ARGS: Final = TypeAdapter(ExtenderBindingArgs)


def parse_binding(body: bytes) -> ExtenderBindingArgs:
    """Read the body of a bind request. Raises WireError."""
    return parse_json(BINDING_ARGS, body)


def binding_reply(error: str) -> bytes:
    """The reply, with status 200. *error* empty: the pod is bound."""
    return orjson.dumps({"Error": error})
