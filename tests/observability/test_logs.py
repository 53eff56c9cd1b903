"""Log lines that machines and people read, and the id that leads from an answer to them."""

import logging
import sys

import orjson
import pytest

from extender.api.access.middleware import request_id_of
from extender.observability.logs import REQUEST_ID, FaultLog, FewWarnings, JSONFormatter, TextFormatter


def record(message: str, *arguments: object, failed: bool = False) -> logging.LogRecord:
    error = None
    if failed:
        try:
            int("x\ny")
        except ValueError:
            error = sys.exc_info()
    return logging.LogRecord("extender.api", logging.WARNING, "f.py", 1, message, arguments, error)


@pytest.mark.parametrize("proposed", ["a", "0123-abc_.:/+=", "x" * 128])
def test_a_plain_id_of_the_caller_is_taken_over(proposed: str) -> None:
    assert request_id_of(proposed) == proposed


@pytest.mark.parametrize("proposed", [None, "", "x" * 129, "a b", "a\nb", 'a"b', "é", "a\x00"])
def test_any_other_is_replaced(proposed: str | None) -> None:
    first, second = request_id_of(proposed), request_id_of(proposed)

    assert first != second
    assert request_id_of(first) == first


def test_text_is_one_line_whatever_was_sent() -> None:
    line = TextFormatter().format(record("refused name=%s", "a\nERROR root forged\r"))

    assert line.endswith(r"WARNING extender.api refused name=a\nERROR root forged\r")


def test_json_is_one_object_a_line_with_request_and_traceback() -> None:
    token = REQUEST_ID.set("abc")
    try:
        line = JSONFormatter().format(record("defect name=%s", "a\n\udcff", failed=True))
    finally:
        REQUEST_ID.reset(token)
    document = orjson.loads(line)

    assert "\n" not in line
    assert document["message"] == "defect name=a\n?"
    assert (document["level"], document["request_id"]) == ("warning", "abc")
    assert "ValueError: invalid" in document["exception"]


def test_a_fault_that_lasts_is_one_warning_a_minute_and_one_line_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "parts")
    seconds = iter(range(0, 10_000, 10))
    fault = FaultLog(logging.getLogger("parts"), "the lease", lambda: next(seconds))
    fault.ended()
    for attempt in range(12):  # 0 s to 110 s
        fault.failed("attempt %d", attempt)
    fault.ended()
    fault.ended()

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "the lease: attempt 0"),
        ("WARNING", "the lease: attempt 6 (5 more since the last such line)"),
        ("INFO", "the lease: works again"),
    ]


def test_a_fault_that_comes_and_goes_is_not_told_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "parts")
    seconds = iter(range(100))
    fault = FaultLog(logging.getLogger("parts"), "the lease", lambda: next(seconds))
    for _ in range(50):
        fault.failed("no answer")
        fault.ended()

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_warnings_of_a_library_are_a_few_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    logger = logging.getLogger("a library")
    few = FewWarnings(lambda: now)
    logger.addFilter(few)
    try:
        for _ in range(1000):
            logger.warning("Invalid HTTP request received.")
        logger.warning("another %s", "text")
        logger.error("an error")
        now = 60.0
        logger.warning("Invalid HTTP request received.")
    finally:
        logger.removeFilter(few)

    texts = [each.getMessage() for each in caplog.records]
    last = "Invalid HTTP request received. (997 more were not logged)"
    assert texts == ["Invalid HTTP request received."] * 3 + ["another text", "an error", last]
