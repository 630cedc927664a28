"""The log of a server process: lines on the standard error stream, for people or for programs.

Owns: the two forms of a line, and the names that every line has (`docs/reference/logs.md`). What a
record carries under `fields` is in both: at the end of a line of text, and as members of a JSON
object. Secrets are nobody's business here: whoever logs must not hand any over.
"""

import datetime
import logging
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Literal

import msgspec

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
        fields = " ".join(f"{name}={value}" for name, value in shown)
        return f"{line} ({fields})" if fields else line


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
        return msgspec.json.encode(line, enc_hook=str).decode()
