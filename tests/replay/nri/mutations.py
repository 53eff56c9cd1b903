"""How many small faults in the replay of the NRI policy the recorded answers notice.

`python -m tests.replay.nri.mutations --count 200` changes one operator, constant or condition of `extender/nri`
at a time, each in a process of its own, compares a sample of every recorded theme, and runs the tests beside this file.
It prints the changes that nobody noticed: each is either without effect or a rule that is not covered.
"""

import ast
import copy
import importlib.abc
import importlib.util
import json
import lzma
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click
import pytest

PACKAGE: Final = Path(__file__).parents[3] / "extender" / "nri"
VECTORS: Final = Path(__file__).parents[2] / "vectors" / "nri"
SECONDS: Final = 120
"""CPU time of one change; one that never ends is noticed."""
GAPS: Final = "gaps"
"""The file of which all scenarios are compared; not imported, because that would load the modules to change."""
LEFT_OUT: Final = ("__init__.py", "verdict.py", "orders.py")
TESTS: Final = ("test_rules_by_example.py", "test_admission.py", "test_amounts.py", "test_counts.py", "test_orders.py")

_SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.FloorDiv: ast.Mult,
}  # fmt: skip


def _mutants(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """(what was changed, changed module) for each place of *tree* that can be changed."""
    for number, node in enumerate(ast.walk(tree)):
        for name in ("op", "ops"):
            old = getattr(node, name, None)
            first = old[0] if isinstance(old, list) else old
            if isinstance(first, ast.AST) and type(first) in _SWAPS:
                changed = copy.deepcopy(tree)
                place: Any = _nth(changed, number)
                new = _SWAPS[type(first)]()
                setattr(place, name, [new, *getattr(place, name)[1:]] if isinstance(old, list) else new)
                yield _shown(node, place), changed
        if isinstance(node, ast.Constant) and type(node.value) is int:
            changed = copy.deepcopy(tree)
            constant = _nth(changed, number)
            assert isinstance(constant, ast.Constant)
            constant.value = node.value + 1
            yield _shown(node, constant), changed
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            changed = copy.deepcopy(tree)
            branch = _nth(changed, number)
            assert isinstance(branch, ast.If | ast.IfExp | ast.While)
            branch.test = ast.UnaryOp(ast.Not(), branch.test)
            ast.fix_missing_locations(changed)
            yield f"line {node.lineno}: condition of `{ast.unparse(node.test)[:60]}` turned around", changed


def _nth(tree: ast.Module, number: int) -> ast.AST:
    return next(node for i, node in enumerate(ast.walk(tree)) if i == number)


def _shown(old: ast.AST, new: ast.AST) -> str:
    return f"line {getattr(old, 'lineno', 0)}: `{ast.unparse(old)[:60]}` became `{ast.unparse(new)[:60]}`"


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a changed tree."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self._name, self._tree = name, tree

    def find_spec(self, fullname: str, _path: object, _target: ModuleType | None = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._tree, self._name, "exec"), module.__dict__)


def _is_noticed(documents: Sequence[dict[str, Any]]) -> bool:
    """Whether the replay, as it is imported now, differs from a recording or fails."""
    from extender.conformance.nri_scenario import check
    from extender.wire.nri_scenarios import scenario_from_json
    from tests.replay.nri.vectors import machine

    counts: Counter[str] = Counter()
    if any(check(scenario_from_json(document), machine(document["m"]), counts) for document in documents):
        return True
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    here = Path(__file__).parent
    return pytest.main(["-q", "-x", "-p", "no:cacheprovider", *(str(here / name) for name in TESTS)]) != 0


def _run(module: str, tree: ast.Module | None, documents: Sequence[dict[str, Any]]) -> bool:
    """Whether the change is noticed, tried in a process of its own."""
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        noticed = True
        try:
            if tree is not None:
                sys.meta_path.insert(0, _Changed(module, tree))
            noticed = _is_noticed(documents)
        finally:
            os._exit(1 if noticed else 0)
    return os.waitpid(child, 0)[1] != 0


def _documents(count: int) -> list[dict[str, Any]]:
    """*count* scenarios of every theme and all of GAPS, short ones first, so that most changes are noticed soon."""
    chosen = []
    for path in sorted(VECTORS.glob("*.jsonl.xz")):
        with lzma.open(path) as lines:
            found = list(lines)
        chosen += found if path.name.startswith(GAPS) else random.Random(19).sample(found, count)
    return [json.loads(line) for line in sorted(chosen, key=len)]


@click.command()
@click.option("--count", default=200, show_default=True, help="Changes to try.")
@click.option("--seed", default=1, show_default=True)
@click.option("--sample", default=6, show_default=True, help="Scenarios of each theme.")
def main(count: int, seed: int, sample: int) -> None:
    """Try random changes and print those that no recorded answer notices."""
    documents = _documents(sample)
    if _run("", None, documents):
        raise click.ClickException("the replay differs from the recordings before anything is changed")
    places = []
    for path in sorted(PACKAGE.glob("*.py")):
        if path.name not in LEFT_OUT:
            places += [(path, *mutant) for mutant in _mutants(ast.parse(path.read_text()))]
    chosen = random.Random(seed).sample(places, min(count, len(places)))
    unnoticed = 0
    for path, what, tree in chosen:
        if not _run(f"extender.nri.{path.stem}", tree, documents):
            unnoticed += 1
            click.echo(f"{path.name} {what}")
    click.echo(f"{len(chosen) - unnoticed} of {len(chosen)} changes noticed ({len(places)} places, seed {seed})")


if __name__ == "__main__":
    main()
