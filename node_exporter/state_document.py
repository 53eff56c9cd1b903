"""The state that a kubelet restores from its CPU or memory manager state file, whichever version wrote the file.

Up to 1.36 the document itself is restored. From 1.37 on a file contains the state twice: in the old members, for an
older kubelet, and as a JSON text in `data`, with `dataChecksum`. A kubelet of 1.37 restores `data` alone, and only
`data` has the entries of pods (`podEntries`, gate PodLevelResourceManagers).

The exporter and the extender share this function, so that both read the same state.

Mirrors: kubelet `cm/cpumanager/state/checkpoint.go` and `cm/memorymanager/state/checkpoint.go` of 1.37, and
`restoreState` in `state_checkpoint.go` beside each.
"""

import json
from collections.abc import Mapping
from typing import Any

JsonObject = Mapping[str, Any]
FNV_OFFSET = 0x811C9DC5
FNV_PRIME = 0x01000193


class StateDocumentError(ValueError):
    """A kubelet refuses to start with this file. The message gives the reason."""


def fnv32a(content: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    value = FNV_OFFSET
    for byte in content:
        value = ((value ^ byte) * FNV_PRIME) & 0xFFFFFFFF
    return value


def has_data(document: JsonObject) -> bool:
    """Whether the document has the form of 1.37, in which `data` is the state."""
    return bool(document.get("data") or document.get("dataChecksum"))


def effective_document(document: JsonObject) -> JsonObject:
    """The state that a kubelet restores: the decoded `data`, or the document itself if it has none.

    Raises:
        StateDocumentError: `data` and `dataChecksum` do not agree, or `data` is not a JSON object in a string.
    """
    if not has_data(document):
        return document
    data, written = document.get("data"), document.get("dataChecksum", 0)
    if not isinstance(data, str) or not data:
        raise StateDocumentError("it has a dataChecksum, but no data")
    try:
        computed = fnv32a(b"(string)" + data.encode())
        inner = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StateDocumentError(f"data is not JSON: {str(error)[:200]}") from None
    if written != computed:
        raise StateDocumentError(f"dataChecksum is {str(written)[:40]}, data has {computed}")
    if not isinstance(inner, dict):
        raise StateDocumentError("data is not a JSON object")
    return inner


def edited_by_hand(document: JsonObject) -> bool:
    """Whether the two copies in a document of 1.37 differ. A kubelet writes both in one step."""
    if not has_data(document):
        return False
    inner = {key: value for key, value in effective_document(document).items() if key != "podEntries"}
    outer = {key: value for key, value in document.items() if key not in {"checksum", "data", "dataChecksum"}}
    return inner != outer
