"""One name for one thing: no two classes of the product have the same name."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


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
    twice = {name: places for name, places in files.items() if len(places) > 1}
    assert not twice
