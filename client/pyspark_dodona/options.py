"""The options of a read and of a write: which there are, and what they may say.

Owns: every option's name and check. Spark hands names over in lower case and values as text.
Must not connect to anything: an option that is wrong is refused before the cluster is asked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dodona.errors import InvalidRequest
from dodona.types import MAX_TIMESTAMP, MIN_TIMESTAMP, Durability, Timestamp

READ_OPTIONS: Final = ("path", "url", "timestamp", "columns")
WRITE_OPTIONS: Final = ("path", "url", "atomicity", "durability")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read as asked for. None stands for: a fresh timestamp, all columns."""

    url: str
    path: str
    timestamp: Timestamp | None
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A write as asked for; it is never atomic."""

    url: str
    path: str
    durability: Durability


def is_write(options: Mapping[str, str]) -> bool:
    """Whether these can only be options of a write."""
    return "atomicity" in options or "durability" in options


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a read. Raises InvalidRequest."""
    _check_names("read", options, READ_OPTIONS)
    columns = options.get("columns")
    return ReadOptions(
        _required(options, "url", "option('url', 'http://127.0.0.1:8500')"),
        _required(options, "path", "load('//folder/table')"),
        _timestamp(options.get("timestamp")),
        None if columns is None else tuple(name.strip() for name in columns.split(",")),
    )


def parse_write(options: Mapping[str, str], *, is_overwrite: bool) -> WriteOptions:
    """Check the options of a write. Raises InvalidRequest."""
    _check_names("write", options, WRITE_OPTIONS)
    if is_overwrite:
        raise InvalidRequest("mode('overwrite') is not possible: use mode('append')")
    if options.get("atomicity") != "none":
        raise InvalidRequest(
            "a Spark write is not a transaction: rows become visible as they arrive, and those of "
            "a failed job stay; agree to that with option('atomicity', 'none')"
        )
    return WriteOptions(
        _required(options, "url", "option('url', 'http://127.0.0.1:8500')"),
        _required(options, "path", "save('//folder/table')"),
        _durability(options.get("durability", "sync")),
    )


def _check_names(action: str, options: Mapping[str, str], known: Iterable[str]) -> None:
    for name in sorted(options):
        if name not in known:
            names = ", ".join(sorted(known))
            raise InvalidRequest(f"a {action} has no option {name!r}; it has these: {names}")


def _required(options: Mapping[str, str], name: str, example: str) -> str:
    value = options.get(name)
    if not value:
        raise InvalidRequest(f"the option {name!r} is missing: give it by {example}")
    return value


def _timestamp(text: str | None) -> Timestamp | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal():
        raise InvalidRequest(f"the option 'timestamp' takes an integer, not {text!r}")
    if not MIN_TIMESTAMP <= int(text) <= MAX_TIMESTAMP:
        raise InvalidRequest(f"the option 'timestamp' is not a timestamp of the oracle: {text}")
    return Timestamp(int(text))


def _durability(text: str) -> Durability:
    match text:
        case "sync" | "async":
            return text
    raise InvalidRequest(f"the option 'durability' takes 'sync' or 'async', not {text!r}")
