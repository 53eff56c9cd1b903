"""One name for one thing: no two classes of the product have the same name."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
NRI: Final = "extender/nri mirrors another program, the NRI resource policy, and uses that program's names"
EXCEPTIONS: Final = {
    "Container": NRI,
    "Device": NRI,
    "Hint": NRI,
    "Machine": NRI,
    "Outcome": NRI,
    "Pod": NRI,
    "Refusal": NRI,
    "Scope": NRI,
}


def _files_of_classes() -> dict[str, list[str]]:
    files = defaultdict(list)
    for folder in ("extender", "node_exporter"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    files[node.name].append(path.relative_to(ROOT).as_posix())
    return files


def test_no_class_name_is_defined_twice() -> None:
    files = _files_of_classes()
    twice = {name: places for name, places in files.items() if len(places) > 1 and name not in EXCEPTIONS}
    assert not twice


def test_every_exception_is_still_needed() -> None:
    files = _files_of_classes()
    assert {name for name in EXCEPTIONS if len(files[name]) < 2} <= {"_Question"}
