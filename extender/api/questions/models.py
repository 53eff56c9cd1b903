"""The base of the models of `api.records`."""

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """Base of replies."""

    model_config = ConfigDict(frozen=True)
