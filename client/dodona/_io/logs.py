"""The log of a server process: lines on the standard error stream, for people or for programs.

Owns: the two forms of a line. What a record carries under `fields` is in both: at the end of a
line of text, and as members of a JSON object. Secrets are nobody's business here: whoever logs
must not hand any over.
"""

import datetime
import logging
from typing import Any, Final, Literal

import msgspec

LogFormat = Literal["text", "json"]
TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TALKATIVE: Final = ("httpx", "httpcore", "picows", "uvicorn", "uvicorn.error", "uvicorn.access")
"""These tell of every single request."""


def prepare_logging(level: str, form: LogFormat = "text") -> None:
    """Everything goes to the standard error stream."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines(TEXT_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


class TextLines(logging.Formatter):
    """A sentence, and what it is about."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        return f"{line} ({fields})" if fields else line


class JsonLines(logging.Formatter):
    """One object a line: time (UTC), level, logger, message, and what it is about."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()
