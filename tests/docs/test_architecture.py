"""docs/architecture.md: its paths exist, and its rooms are those of the import contract."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def section(title: str) -> str:
    """The text of one heading, up to the next one."""
    (text,) = re.findall(rf"^##+ {title}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_every_path_that_is_named_exists() -> None:
    paths = re.findall(r"`((?:extender|node_exporter|tests|manifests|docs)/?[\w./-]*)`", PAGE)
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def test_the_rooms_are_those_of_the_import_contract_in_its_order() -> None:
    (layers,) = (contract["layers"] for contract in CONTRACTS if contract["name"].startswith("The service is layered"))
    rows = [line.split("|")[1] for line in section("Rooms").splitlines() if line.startswith("| `extender")]
    rooms = [sorted(_module(path) for path in re.findall(r"`([\w./]+)`", row)) for row in rows]
    split = [sorted(name.strip() for name in layer.split("|")) for layer in layers]
    assert rooms == split


def test_every_package_of_the_extender_is_on_the_page() -> None:
    packages = [path.parent.name for path in ROOT.glob("extender/*/__init__.py")]
    assert [name for name in packages if f"extender/{name}" not in PAGE] == []


def test_the_types_of_a_way_are_few_and_exist() -> None:
    sources = "".join(
        path.read_text() for room in ("extender", "node_exporter") for path in (ROOT / room).rglob("*.py")
    )
    for way in ("Filter", "Bind", "Report"):
        (line,) = re.findall(r"^Types: (.*(?:\n.+)*)", section(way), re.MULTILINE)
        names = re.findall(r"`(\w+)`", line)
        assert 8 <= len(names) <= 12
        for name in names:
            assert re.search(rf"^(?:class {name}\b|{name}(?:: \w+)? = )", sources, re.MULTILINE), name
