"""docs/settings.md names every variable of both programs, as the code reads them."""

import re
from pathlib import Path

import pytest

from extender.config.settings import PREFIX, Settings
from node_exporter.__main__ import run
from tests.docs.settings_page import Row, asking_rows, exporter_rows, extender_rows, page

PAGE = Path(__file__).parents[2] / "docs/settings.md"
ROWS = [*extender_rows(), *exporter_rows(), *asking_rows()]


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.docs.settings_page > docs/settings.md"


def test_every_variable_of_both_programs_is_in_it() -> None:
    named = set(re.findall(r"^- `([A-Z_]+)=", PAGE.read_text(), re.MULTILINE))
    assert {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} <= named
    assert {str(option.envvar) for option in run.params if option.envvar} <= named


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_variable_has_unit_default_and_why(row: Row) -> None:
    _, unit, default, why = row
    assert unit
    assert default
    assert len(why) > 10


def test_every_option_of_the_exporter_that_a_cluster_may_need_has_a_variable() -> None:
    without = {option.name for option in run.params if not option.envvar}
    assert without == {"once", "dry_run"}


def test_units_follow_the_names() -> None:
    units = {variable: unit for variable, unit, _, _ in ROWS}
    for variable, unit in units.items():
        if variable.endswith("_SECONDS"):
            assert unit == "seconds"
        if "_BYTES" in variable:
            assert unit == "bytes"
    assert units["NUMA_EXTENDER_LOG_FORMAT"] == units["NUMA_LOG_FORMAT"] == "`text` or `json`"
