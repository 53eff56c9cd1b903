"""Counts the elements of a protobuf message in its bytes, before anything is built from them.

An empty element is 2 bytes on the wire and at least 60 bytes in memory, so the size of a message says little about its
cost. The descriptor says which fields are messages. Other fields of variable length count as packed numbers if the
descriptor says so, and as one text otherwise.
"""

from typing import Any, Final

VARINT: Final = 0
FIXED_64: Final = 1
DELIMITED: Final = 2
FIXED_32: Final = 5


def check_elements(content: bytes, descriptor: Any, most: int) -> None:  # noqa: ANN401 - two classes of protobuf
    """Raises ValueError if the message has more than `most` fields and packed numbers, or is malformed."""
    waiting: list[tuple[int, int, Any]] = [(0, len(content), descriptor)]
    count = 0
    while waiting and count <= most:
        position, end, kind = waiting.pop()
        fields = kind.fields_by_number
        while position < end and count <= most:
            count += 1
            tag, position = _varint(content, position)
            wire = tag & 7
            if wire == VARINT:
                _, position = _varint(content, position)
            elif wire == DELIMITED:
                length, position = _varint(content, position)
                field = fields.get(tag >> 3)
                if field is not None and field.message_type is not None:
                    waiting.append((position, min(position + length, end), field.message_type))
                elif field is not None and field.is_packed:
                    count += length
                position += length
            elif wire in (FIXED_32, FIXED_64):
                position += 4 if wire == FIXED_32 else 8
            else:
                raise ValueError("not a protobuf message")
    if count > most:
        raise ValueError(f"more than {most} elements")


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """The number at a position, and the position after it."""
    value = shift = 0
    while shift < 70 and position < len(content):
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("not a protobuf message")
