"""The log of a server process: lines on the standard error stream, for people or for programs.

Owns: the two forms of a line, and the names that every line has (`docs/reference/logs.md`). What a
record carries under `fields` is in both: at the end of a line of text, and as members of a JSON
object. Nobody whose words are in a line can make it look like two: in either form. Secrets are
nobody's business here: whoever logs must not hand any over.
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
"""These tell of every single request."""
OWN_NAMES: Final = ("time", "level", "server", "logger", "message", "error")
"""What a record's fields can't be named in a JSON object: they get a `_` behind."""

Fields = Callable[[], Mapping[str, Any]]
_contexts: list[Fields] = []
_logger: Final = logging.getLogger("dodona.process")


def prepare_logging(level: str, form: LogFormat = "text", server: str = "") -> None:
    """Everything goes to the standard error stream: warnings too, and what ends the process."""
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
    """A line about something that has a name, which stays as it is, and is in the reference."""
    logger.log(level, message, extra={"fields": {"event": event, **fields}})


def add_context(fields: Fields) -> None:
    """From now on have each line say these, too. Once for each function."""
    if fields not in _contexts:
        _contexts.append(fields)


def _log_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _logger.critical("the process ends", exc_info=(kind, error, trace))


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is SystemExit:  # as Python does: to end in this way is no surprise
        return
    error = ended.exc_value or ended.exc_type()
    name = "a thread" if ended.thread is None else f"the thread {ended.thread.name}"
    _logger.error(f"{name} ends", exc_info=(ended.exc_type, error, ended.exc_traceback))


def _log_unraisable(found: "sys.UnraisableHookArgs") -> None:
    """What is raised where nobody could catch it, as in `__del__`."""
    error = found.exc_value or found.exc_type()
    text = found.err_msg or "an error that nobody could catch"
    _logger.error(text, exc_info=(found.exc_type, error, found.exc_traceback))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for context in _contexts:
        fields.update(context())
    fields.update(getattr(record, "fields", {}))
    return fields


class TextLines(logging.Formatter):
    """A sentence, and what it is about."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        shown = [(name, value) for name, value in _fields(record).items() if name != "event"]
        fields = " ".join(f"{name}={_quoted(_text(value))}" for name, value in shown)
        return f"{line} ({fields})" if fields else line

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return _visible(super().formatMessage(record).rstrip())  # Python's warnings end in a break

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Further in than a line begins: an error's text may be a caller's, too."""
        return "\n".join(f"  {_visible(it)}" for it in super().formatException(ei).split("\n"))


def _text(value: Any) -> str:
    """As `str`, which raises ValueError for integers of more than 4,300 digits."""
    try:
        return str(value)
    except ValueError:
        return shown(value)


def _quoted(text: str) -> str:
    """As it is, or as JSON has it if something of it can't be printed."""
    return text if text.isprintable() else json.dumps(text)


def _visible(text: str) -> str:
    """What can't be printed, such as the end of a line, is written as Python would."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else repr(it)[1:-1] for it in text)


class JsonLines(logging.Formatter):
    """One object a line: time (UTC), level, server, logger, message, and what it is about."""

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
        # Half a character, as in the name of a file that is no UTF-8: spelt out, and not lost. Or
        # an integer that has no text.
        formatted = {name: _formatted(value) for name, value in line.items()}
        return msgspec.json.encode(formatted).decode()


def _formatted(value: Any) -> Any:
    if isinstance(value, float | None) or (isinstance(value, int) and value.bit_length() <= 64):
        return value
    return _text(value).encode("utf-8", "backslashreplace").decode()
