"""The base of replies. One declaration of a reply is its type, its JSON, its schema, and what the command line reads.

Rules for replies
- Every field states its unit, its limits, and what empty or null means.
- Questions (`wire.questions.Question`) refuse unknown keys, so that a typo is an error that names it. Replies may get
  new fields.
"""

from typing import Annotated, Any, Self

from msgspec import Meta, Struct


class ReplyBody(Struct):
    """Base of replies, and of their parts."""

    @classmethod
    def filled(cls, source: object, **more: object) -> Self:
        """The reply with the fields of *more*; the others are the attributes of *source* with their names."""
        return cls(**{name: more[name] if name in more else getattr(source, name) for name in cls.__struct_fields__})


def about(text: str, *examples: object, **limits: Any) -> Meta:
    """The description of a field in the API's schema, with its limits; stands in `Annotated`."""
    return Meta(description=text, examples=list(examples) or None, **limits)


CPUList = Annotated[str, about("CPU ids as a Linux list, such as `0-3,8`.", "8-9,24-25")]
NUMAIds = Annotated[list[int], about("NUMA node ids, ascending.", [0, 1])]
Notes = Annotated[list[str], about("Assumptions of the answer, and what was not checked.")]
