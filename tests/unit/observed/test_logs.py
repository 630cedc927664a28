"""The lines of a server's log, in both forms, and the page that lists what they are about."""

import json
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dodona_server import logs


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> logging.Formatter:
    monkeypatch.setattr(logs, "_contexts", [])
    return logs.JsonLines("node")


def record(message: str, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("dodona.x", logging.WARNING, "file", 1, message, (), None)
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_a_line_is_an_object_with_stable_names(lines: logging.Formatter) -> None:
    text = lines.format(record("two\nlines", fields={"cell": 3, "message": "hidden", "what": b"x"}))
    assert "\n" not in text
    line = json.loads(text)
    assert list(line) == [
        "time",
        "level",
        "server",
        "logger",
        "message",
        "cell",
        "message_",
        "what",
    ]
    assert (line["level"], line["server"], line["message"]) == ("warning", "node", "two\nlines")


def test_a_log_line_contains_the_exception(lines: logging.Formatter) -> None:
    try:
        raise ValueError("secret")
    except ValueError:
        text = lines.format(record("it failed", exc_info=sys.exc_info()))
    assert "\n" not in text
    assert "ValueError: secret" in json.loads(text)["error"]


def test_a_log_line_contains_the_trace_id_of_its_span(lines: logging.Formatter) -> None:
    logs.add_context(lambda: {"trace_id": "abc"})
    assert json.loads(lines.format(record("x")))["trace_id"] == "abc"
    assert logs.TextLines("%(message)s").format(record("x")) == "x (trace_id=abc)"


@contextmanager
def prepared() -> Iterator[None]:
    """A process whose log is in JSON."""
    with pytest.MonkeyPatch.context() as patch:
        root = logging.getLogger()
        patch.setattr(root, "handlers", [])
        patch.setattr(root, "level", root.level)
        for module, hook in (
            (sys, "excepthook"),
            (threading, "excepthook"),
            (sys, "unraisablehook"),
        ):
            patch.setattr(module, hook, getattr(module, hook))
        logs.prepare_logging("info", "json", "master")
        try:
            yield
        finally:
            logging.captureWarnings(False)


def test_warnings_and_the_end_of_a_process_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with prepared():
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            warnings.warn("mind the gap", stacklevel=1)
        sys.excepthook(ValueError, ValueError("boom"), None)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert "mind the gap" in first["message"]
    assert (second["level"], second["server"]) == ("critical", "master")
    assert "boom" in second["error"]


class Ending:
    def __del__(self) -> None:
        raise ValueError("in the end")


def test_an_uncaught_exception_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError("beside")

    with prepared():
        for target in (fail, sys.exit):
            thread = threading.Thread(target=target, name="worker")
            thread.start()
            thread.join()
        Ending()
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["message"] == "the thread worker ends"
    assert "ValueError: beside" in first["error"]
    assert "ValueError: in the end" in second["error"]


def test_a_lone_surrogate_is_escaped_in_a_log_line(lines: logging.Formatter) -> None:
    line = json.loads(lines.format(record("\udc80", fields={"path": "/\udcff", "status": 500})))
    assert (line["message"], line["path"], line["status"]) == ("\\udc80", "/\\udcff", 500)


FORGED = "2026-01-01 00:00:00,000 CRITICAL dodona.runtime: forged"


def test_text_from_a_caller_cannot_forge_a_log_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_contexts", [])
    form = logs.TextLines("%(levelname)s %(message)s")
    path = f"/v1/x\n{FORGED}"
    found = form.format(record(f"gone\r\n{FORGED}", fields={"path": path, "status": 500}))
    assert found == f'WARNING gone\\r\\n{FORGED} (path="/v1/x\\n{FORGED}" status=500)'
    assert form.format(record("häufig", fields={"path": "/ä b"})) == "WARNING häufig (path=/ä b)"
    try:
        raise ValueError(path)
    except ValueError:
        found = form.format(record("it failed", exc_info=sys.exc_info()))
    first, *others = found.splitlines()
    assert first == "WARNING it failed"
    assert others[0] == "  Traceback (most recent call last):"
    assert all(it.startswith("  ") for it in others)


ROOT = Path(__file__).resolve().parents[3]


def test_the_page_of_logs_lists_every_event() -> None:
    sources = [
        it for folder in ("client", "oracle", "tablets") for it in (ROOT / folder).rglob("*.py")
    ]
    told = {
        name
        for it in sources
        for name in re.findall(r'tell\(\s*_logger,\s*logging\.\w+,\s*"(\w+)"', it.read_text())
    }
    told.add("request_failed")
    page = (ROOT / "docs" / "reference" / "logs.md").read_text().partition("## Events")[2]
    listed = re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
    assert {name for cell in listed for name in re.findall(r"`(\w+)`", cell)} == told
