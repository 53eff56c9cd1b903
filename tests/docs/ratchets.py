"""Counts how much code there is, and how much of it one call or one reader needs.

`python -m tests.docs.ratchets` prints the counts beside the recorded ones, and records those that have fallen. A test
fails if a count is above the recorded one. To raise a recorded count, edit `ratchets.json` and say why in the commit.
"""

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import orjson

from tests.docs.calls import record_calls
from tests.docs.tracing import ROOT, Entries

RECORDED: Final = Path(__file__).with_name("ratchets.json")
_ACCESS: Final = "extender/api/access/"
"""Left out of a call's counts: which files of it are entered depends on how the caller proves its identity."""
_KUBELET: Final = "extender.kubelet.admission"
"""The module that admits a pod. What it imports is what a reader of the kubelet's rules may have to read."""


_OWN: Final = {
    "autoscaling": ("autoscaling",),
    "kueue": ("features/kueue/",),
    "shapes": ("shapes",),
    "room": ("features/room/",),
    "doctor": ("cli/doctor",),
    "label selectors": ("wire/selectors",),
    "DRA": ("dra", "features/claims/"),
}
"""Features whose lines do not count as product lines but by themselves. The path of each of their files has one of
these."""


_NRI: Final = r"extender[./](nri|replay[./](creation|nri_pod)|(wire|lint|conformance|questions)[./]nri)"
"""The NRI topology-aware policy: its modules and files."""


def counted(entered: Mapping[str, Entries]) -> Mapping[str, int]:
    """Name of the count -> count. *entered*: see `record_calls`."""
    product = [path for room in ("extender", "node_exporter") for path in (ROOT / room).rglob("*.py")]
    product = [path for path in product if not path.name.endswith("_pb2.py")]
    paths = {path: path.relative_to(ROOT).as_posix() for path in product}
    own = {
        name: {path for path, text in paths.items() if any(part in text for part in parts)}
        for name, parts in _OWN.items()
    }
    kubelet = _imported_by(_KUBELET)
    return {
        "product lines": _lines(set(product).difference(*own.values())),
        **{f"product lines of {name}": _lines(files) for name, files in own.items()},
        **_of_call("filter", entered["Filter"]),
        **_of_call("report", entered["Report"]),
        "kubelet files": len(kubelet),
        "kubelet lines": _lines(kubelet),
        "modules of --help": _modules("--help"),
        "modules of what-if": _modules("what-if", "--help"),
        "kubelet files of the NRI policy": sum("nri" in str(path.relative_to(ROOT)) for path in kubelet),
        "other files that import the NRI policy": sum(
            not re.match(_NRI, text) and re.search(rf"^ *from {_NRI}", path.read_text(), re.MULTILINE) is not None
            for path, text in paths.items()
        ),
    }


def _of_call(name: str, entries: Entries) -> Mapping[str, int]:
    """Counts of one call: the files that it enters, the functions that run, and the classes in these files."""
    files = [file for file in entries.files if not file.startswith(_ACCESS)]
    return {
        f"{name} files": len(files),
        f"{name} functions": sum(not file.startswith(_ACCESS) for file, _ in entries.functions),
        f"{name} classes": sum(_classes(ROOT / file) for file in files),
    }


def _classes(path: Path) -> int:
    return sum(isinstance(node, ast.ClassDef) for node in ast.walk(ast.parse(path.read_text())))


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def _imported_by(module: str) -> list[Path]:
    """The files of the product that Python loads to import the module."""
    code = f"import sys, {module}\nfor each in sys.modules.values(): print(getattr(each, '__file__', None) or '')"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT, text=True).stdout
    paths = [Path(line) for line in printed.splitlines() if line.startswith(f"{ROOT}/extender/")]
    return [path for path in paths if path.name != "__init__.py"]


def _modules(*command: str) -> int:
    """How many modules of the product a command of the CLI loads."""
    run = [sys.executable, "-X", "importtime", "-m", "extender", *command]
    loaded = subprocess.run(run, capture_output=True, check=True, cwd=ROOT, text=True).stderr
    return len(re.findall(r"\| +(?:extender|node_exporter)\b", loaded))


def recorded() -> dict[str, int]:
    """The counts that must not be exceeded."""
    return dict(orjson.loads(RECORDED.read_bytes()))


def main() -> None:
    """Print all counts, and record those that have fallen."""
    with tempfile.TemporaryDirectory() as directory:
        now = counted(record_calls(Path(directory)))
    before = recorded() if RECORDED.exists() else {}
    for name, count in now.items():
        print(f"{name:34}{before.get(name, count):>8}{count:>8}")
    kept = {name: min(count, before.get(name, count)) for name, count in now.items()}
    RECORDED.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    main()
