"""The bodies of POST /v1/advice/NAME."""

from typing import Annotated

from pydantic import Field

from extender.wire.questions import Question


class ResizeCheckRequest(Question):
    """Other amounts for one container of a running pod."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME or UID of a pod on a node.", examples=["demo/worker-0"])]
    container: Annotated[
        str, Field(description="Name of a container. May be empty if the pod has only one that runs for long.")
    ] = ""
    cpu: Annotated[str | None, Field(description="New CPU request, a quantity; null: unchanged.", examples=["8"])] = (
        None
    )
    memory: Annotated[str | None, Field(description="New memory request, a quantity; null: unchanged.")] = None
