"""The log of a server process: lines on the standard error stream, for people or for programs.

Owns: the two forms of a line, and the names that every line has (`docs/reference/logs.md`). Both
forms show the `fields` of a record: text at the end of its line, JSON as members of its object. In
both forms, text of a caller cannot make one line look like two. This module does not look for
secrets: code that logs must not hand any over.
"""

import datetime
import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Literal

import msgspec

from dodona_wire.shown import shown

LogFormat = Literal["text", "json"]
TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TALKATIVE: Final = ("httpx", "httpcore", "picows", "uvicorn", "uvicorn.error", "uvicorn.access")
"""These loggers report every single request."""
OWN_NAMES: Final = ("time", "level", "server", "logger", "message", "error")
"""Names that the fields of a record cannot have in a JSON object: they get a `_` at the end."""

Fields = Callable[[], Mapping[str, Any]]
_contexts: list[Fields] = []
_logger: Final = logging.getLogger("dodona.process")


def prepare_logging(level: str, form: LogFormat = "text", server: str = "") -> None:
    """Log to the standard error stream, also warnings and the error that ends the process."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(server) if form == "json" else TextLines(TEXT_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)
    sys.excepthook = _log_end
    threading.excepthook = _log_end_of_thread
    sys.unraisablehook = _log_unraisable
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))


def tell(logger: logging.Logger, level: int, event: str, message: str, **fields: Any) -> None:
    """Log an event that has a name. The name never changes, and it is in the reference."""
    logger.log(level, message, extra={"fields": {"event": event, **fields}})


def add_context(fields: Fields) -> None:
    """Add these fields to each line from now on. A function is added once."""
    if fields not in _contexts:
        _contexts.append(fields)


def _log_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _logger.critical("the process ends", exc_info=(kind, error, trace))


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is SystemExit:  # as Python does: it is a normal end
        return
    error = ended.exc_value or ended.exc_type()
    name = "a thread" if ended.thread is None else f"the thread {ended.thread.name}"
    _logger.error(f"{name} ends", exc_info=(ended.exc_type, error, ended.exc_traceback))


def _log_unraisable(found: "sys.UnraisableHookArgs") -> None:
    """Log an error that no code can catch, as in `__del__`."""
    error = found.exc_value or found.exc_type()
    text = found.err_msg or "an error that no code could catch"
    _logger.error(text, exc_info=(found.exc_type, error, found.exc_traceback))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for context in _contexts:
        fields.update(context())
    fields.update(getattr(record, "fields", {}))
    return fields


class TextLines(logging.Formatter):
    """Formats a record as text: a sentence, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        shown = [(name, value) for name, value in _fields(record).items() if name != "event"]
        fields = " ".join(f"{name}={_quoted(_text(value))}" for name, value in shown)
        return f"{line} ({fields})" if fields else line

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return _visible(super().formatMessage(record).rstrip())  # Python's warnings end in a break

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Indent the lines, because the text of an error may come from a caller."""
        return "\n".join(f"  {_visible(it)}" for it in super().formatException(ei).split("\n"))


def _text(value: Any) -> str:
    """Return the value as text, also an integer of more than 4,300 digits, where `str` fails."""
    try:
        return str(value)
    except ValueError:
        return shown(value)


def _quoted(text: str) -> str:
    """Return the text as it is, or as JSON if a character is not printable."""
    return text if text.isprintable() else json.dumps(text)


def _visible(text: str) -> str:
    """Write characters that are not printable, such as the end of a line, as Python would."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else repr(it)[1:-1] for it in text)


class JsonLines(logging.Formatter):
    """Formats a record as JSON: time (UTC), level, server, logger, message, and its fields."""

    def __init__(self, server: str = "") -> None:
        super().__init__()
        self._server = server

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "server": self._server,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line[f"{name}_" if name in OWN_NAMES else name] = value
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _encode(line)


def _encode(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except ValueError:
        # A text may have half a character, as the name of a file that is not UTF-8: it is escaped,
        # and not lost. Or an integer has no text.
        formatted = {name: _formatted(value) for name, value in line.items()}
        return msgspec.json.encode(formatted).decode()


def _formatted(value: Any) -> Any:
    if isinstance(value, float | None) or (isinstance(value, int) and value.bit_length() <= 64):
        return value
    return _text(value).encode("utf-8", "backslashreplace").decode()
