"""Log lines that machines and people read, and the id that leads from an answer to them."""

import logging
import sys

import orjson
import pytest

from extender.logs import REQUEST_ID, JSONFormatter, TextFormatter, request_id_from


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
    assert request_id_from(proposed) == proposed


@pytest.mark.parametrize("proposed", [None, "", "x" * 129, "a b", "a\nb", 'a"b', "é", "a\x00"])
def test_any_other_is_replaced(proposed: str | None) -> None:
    first, second = request_id_from(proposed), request_id_from(proposed)

    assert first != second
    assert request_id_from(first) == first


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
