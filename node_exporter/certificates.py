"""Reads the expiry of certificates in PEM files. OpenSSL does all verification elsewhere.

Python's `ssl` decodes only certificates of peers, and the exporter's image has no other library for it.
Source of the layout: RFC 5280, 4.1 (Certificate, TBSCertificate, Validity).
"""

import base64
import re
from datetime import UTC, datetime
from pathlib import Path

from node_exporter.files import MAX_CREDENTIAL_BYTES, read_file

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----")
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18


def expiry(path: Path) -> float:
    """Unix time of the earliest expiry in a PEM file. 0 if no certificate can be read."""
    try:
        blocks = _BLOCK.findall(read_file(path, MAX_CREDENTIAL_BYTES))
        return min((not_after(base64.b64decode(block)) for block in blocks), default=0.0)
    except (OSError, ValueError):  # binascii.Error is a ValueError
        return 0.0


def not_after(der: bytes) -> float:
    """Expiry of one certificate (DER), in Unix time.

    Raises:
        ValueError: it is not a certificate.
    """
    certificate = _content(der, 0, _SEQUENCE)
    fields = _content(certificate, 0, _SEQUENCE)
    position = _after(fields, 0) if fields[:1] == bytes([_VERSION]) else 0
    for _ in ("serialNumber", "signature", "issuer"):
        position = _after(fields, position)
    validity = _content(fields, position, _SEQUENCE)
    end = _after(validity, 0)
    is_short = validity[end : end + 1] == bytes([_UTC_TIME])
    text = _content(validity, end, _UTC_TIME if is_short else _GENERALIZED_TIME).decode("ascii")
    if is_short:
        text = ("20" if text < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _content(data: bytes, position: int, tag: int) -> bytes:
    if data[position : position + 1] != bytes([tag]):
        raise ValueError(f"tag {tag:#x} expected")
    start, end = _bounds(data, position)
    return data[start:end]


def _after(data: bytes, position: int) -> int:
    return _bounds(data, position)[1]


def _bounds(data: bytes, position: int) -> tuple[int, int]:
    """Begin and end of the content of the element at *position*."""
    if position + 2 > len(data):
        raise ValueError("cut off")
    length, start = data[position + 1], position + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    if start + length > len(data):
        raise ValueError("cut off")
    return start, start + length
