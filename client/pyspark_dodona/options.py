"""The options of reads, writes and streams: which there are, and what they may say.

Owns: the table of all options, from which parsing, complaints and the page of documentation are
made, and the checks between options. Spark hands names over in lower case, and values as text.
Must not connect to anything: an option that is wrong is refused before the cluster is asked.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from dodona import LoadTicket
from dodona._core.protocol.deadline import CALL_TIMEOUT_MS_MAX
from dodona_wire.errors import InvalidRequest
from dodona_wire.types import Atomicity, Durability, Timestamp
from pyspark_dodona import option_values as values
from pyspark_dodona.option_values import KeyRange

Action = Literal["read", "write", "stream read", "stream write"]
WriteMode = Literal["upsert", "insert", "update", "delete"]
OnConflict = Literal["error", "overwrite"]

ATOMICITIES: Final[tuple[Atomicity, ...]] = ("full", "none")
DURABILITIES: Final[tuple[Durability, ...]] = ("sync", "async")
WRITE_MODES: Final[tuple[WriteMode, ...]] = ("upsert", "insert", "update", "delete")
ON_CONFLICT: Final[tuple[OnConflict, ...]] = ("error", "overwrite")

SPLIT_ROWS: Final = 1_000_000
LEASE_S: Final = 600
LEASE_S_MAX: Final = 3_600
"""As long as cells grant (see their `reader_lease_ms_max`)."""
BATCH_ROWS: Final = 1_000_000
_OF_CATALOG_TABLES: Final = frozenset({"owner", "provider"})
"""What Spark adds to the options that `create table ... using` names."""
_NO_CATALOG_TABLE: Final = (
    "Spark hands no options to the reader of a table in its own catalog: instead of create table "
    "say create temporary view ... using dodona options (path '//folder/table', url 'http://...')"
)
_INT64_MAX: Final = (1 << 63) - 1

_READS: Final[tuple[Action, ...]] = ("read", "stream read")
_WRITES: Final[tuple[Action, ...]] = ("write", "stream write")
_STREAMS: Final[tuple[Action, ...]] = ("stream read", "stream write")
_ALL: Final[tuple[Action, ...]] = ("read", "write", "stream read", "stream write")


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table. `default` is what the user would have to write for it; "" is none."""

    name: str
    aliases: tuple[str, ...]
    actions: tuple[Action, ...]
    parse: Callable[[str, str], Any]
    takes: str
    meaning: str
    default: str = ""
    is_required: bool = False
    is_spark_s: bool = False
    """Spark hands it over, and it means nothing here."""


OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "url",
        ("endpoint",),
        _ALL,
        values.text,
        "the master's address",
        "the cluster, such as `http://127.0.0.1:8500`",
        is_required=True,
    ),
    Option(
        "path",
        ("table",),
        _ALL,
        values.text,
        "`//folder/table`",
        "the table; given by `load(...)`, `save(...)`",
        is_required=True,
    ),
    Option(
        "timestamp",
        ("timestampAsOf", "versionAsOf"),
        ("read",),
        values.moment,
        "an integer, `latest`, or an RFC 3339 time",
        "the table is read as it was then",
        "latest",
    ),
    Option(
        "columns",
        (),
        _READS,
        values.names,
        "names, commas between",
        "only these are read; all by default",
    ),
    Option(
        "filter",
        (),
        ("read",),
        values.text,
        "an SQL condition",
        "only rows for which it is true; what it says of the key narrows what is read",
    ),
    Option(
        "key_range",
        ("keyRange",),
        ("read", "write", "stream write"),
        values.key_range,
        '`{"lower": [...], "upper": [...]}`',
        "only keys of lower ≤ key < upper, leading key values each, either may be absent; "
        "of a write: what `mode('overwrite')` replaces",
    ),
    Option(
        "split_rows",
        ("splitRows",),
        ("read",),
        values.integer(1, _INT64_MAX),
        "an integer",
        "about so many rows at most are in a partition; a tablet has one or more of them",
        str(SPLIT_ROWS),
    ),
    Option(
        "versioned",
        (),
        ("read",),
        values.flag,
        "`true` or `false`",
        "every version that is left, instead of the newest row; adds the columns of a stream",
        "false",
    ),
    Option(
        "versioned",
        (),
        ("stream read",),
        values.one_of(("true",)),
        "`true`",
        "every change; to be said where neither `starting_timestamp` nor `max_rows_per_batch` is",
        "true",
    ),
    Option(
        "pushdown",
        (),
        ("read",),
        values.flag_or_auto,
        "`true`, `false` or `auto`",
        "whether filters of the DataFrame are applied while reading; `auto`: as "
        "`spark.sql.python.filterPushdown.enabled` says, which `true` needs to be set",
        "auto",
    ),
    Option(
        "lease_s",
        ("leaseSeconds",),
        _ALL,
        values.integer(1, LEASE_S_MAX),
        f"seconds, at most {LEASE_S_MAX}",
        "so long the snapshot, or what is written, is kept without a sign of life of the job",
        str(LEASE_S),
    ),
    Option(
        "call_timeout_ms",
        ("callTimeoutMs",),
        _ALL,
        values.integer(1, CALL_TIMEOUT_MS_MAX),
        "milliseconds",
        "so long each call to a server may take, as in `dodona.connect`",
    ),
    Option(
        "atomicity",
        (),
        _WRITES,
        values.one_of(ATOMICITIES),
        "`full` or `none`",
        "`full`: all becomes visible at once or not at all; `none`: rows are visible as they "
        "arrive; must be the table's",
        "full",
    ),
    Option(
        "durability",
        (),
        _WRITES,
        values.one_of(DURABILITIES),
        "`sync` or `async`",
        "whether rows are on disk when the job ends; `async` with atomicity `none` only",
        "sync",
    ),
    Option(
        "write_mode",
        ("writeMode",),
        _WRITES,
        values.one_of(WRITE_MODES),
        "`upsert`, `insert`, `update` or `delete`",
        "`insert`: no row may be there; `update`: each must be there, and absent columns stay; "
        "`delete`: by key",
        "upsert",
    ),
    Option(
        "on_conflict",
        ("onConflict",),
        _WRITES,
        values.one_of(ON_CONFLICT),
        "`error` or `overwrite`",
        "what happens if a row was changed since the start timestamp",
        "error",
    ),
    Option(
        "start_timestamp",
        ("startTimestamp",),
        ("write",),
        values.issued,
        "an integer, or an RFC 3339 time",
        "rows changed after it conflict; by default those changed since the save began",
    ),
    Option(
        "txn_app_id",
        ("txnAppId",),
        _WRITES,
        values.text,
        "a name",
        "the application that numbers its writes; needs `txn_version`, which of a stream is the "
        "batch's number",
    ),
    Option(
        "txn_version",
        ("txnVersion",),
        ("write",),
        values.integer(0, _INT64_MAX),
        "an integer",
        "the write is skipped if one of this number or a higher one is in; needs `txn_app_id`",
    ),
    Option(
        "load_ticket",
        ("loadTicket",),
        ("write",),
        values.ticket,
        "text",
        "the load that the write belongs to, if that was begun before, as `bulk_write` does",
    ),
    Option(
        "starting_timestamp",
        ("startingTimestamp",),
        ("stream read",),
        values.beginning,
        "an integer, `earliest`, `latest`, or an RFC 3339 time",
        "changes after it are read; `earliest`: all that is left",
        "latest",
    ),
    Option(
        "max_rows_per_batch",
        ("maxRowsPerTrigger",),
        ("stream read",),
        values.integer(1, _INT64_MAX),
        "an integer",
        "about so many rows at most are in a batch",
        str(BATCH_ROWS),
    ),
    Option(
        "checkpointLocation",
        (),
        _STREAMS,
        values.text,
        "a folder",
        "Spark's own: where a stream keeps how far it is",
        is_spark_s=True,
    ),
    Option(
        "queryName",
        (),
        _STREAMS,
        values.text,
        "a name",
        "Spark's own: what the stream is called",
        is_spark_s=True,
    ),
)
"""All options that there are."""

ONLY_FULL: Final = ("on_conflict", "start_timestamp", "txn_app_id", "txn_version", "key_range")
"""Given at all, these need atomicity full."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A batch read as asked for. None stands for: a fresh timestamp, all columns, no condition,
    all keys, and for pushdown: as Spark's switch says."""

    url: str
    path: str
    timestamp: Timestamp | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    key_range: KeyRange | None = None
    split_rows: int = SPLIT_ROWS
    versioned: bool = False
    pushdown: bool | None = None
    lease_s: int = LEASE_S
    call_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A batch write as asked for. `is_overwrite` with the key range None replaces all rows.
    `start_timestamp` None: a fresh one. The application's id and version are both None or neither.
    """

    url: str
    path: str
    atomicity: Atomicity = "full"
    durability: Durability = "sync"
    write_mode: WriteMode = "upsert"
    on_conflict: OnConflict = "error"
    start_timestamp: Timestamp | None = None
    key_range: KeyRange | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    lease_s: int = LEASE_S
    call_timeout_ms: int | None = None
    load_ticket: LoadTicket | None = None
    is_overwrite: bool = False


@dataclass(frozen=True, slots=True)
class StreamReadOptions:
    """A stream of changes as asked for. `starting_timestamp` None: when the stream begins, and
    NULL_TIMESTAMP: all that is left."""

    url: str
    path: str
    columns: tuple[str, ...] | None = None
    starting_timestamp: Timestamp | None = None
    max_rows_per_batch: int = BATCH_ROWS
    lease_s: int = LEASE_S
    call_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StreamWriteOptions:
    """A stream that is written, as asked for. `txn_app_id` None: the query names itself."""

    url: str
    path: str
    atomicity: Atomicity = "full"
    durability: Durability = "sync"
    write_mode: WriteMode = "upsert"
    on_conflict: OnConflict = "error"
    key_range: KeyRange | None = None
    txn_app_id: str | None = None
    lease_s: int = LEASE_S
    call_timeout_ms: int | None = None
    is_overwrite: bool = False


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a batch read. Raises InvalidRequest."""
    return ReadOptions(**_parsed("read", options))


def parse_write(options: Mapping[str, str], *, is_overwrite: bool) -> WriteOptions:
    """Check the options of a batch write. Raises InvalidRequest."""
    parsed = _parsed("write", options)
    if ("txn_app_id" in parsed) != ("txn_version" in parsed):
        raise InvalidRequest("the options 'txn_app_id' and 'txn_version' are given both or neither")
    _check_write(parsed, is_overwrite=is_overwrite)
    if "load_ticket" in parsed:
        _check_ticket(parsed, is_overwrite=is_overwrite)
    return WriteOptions(**parsed, is_overwrite=is_overwrite)


def parse_stream_read(options: Mapping[str, str]) -> StreamReadOptions:
    """Check the options of a stream that is read. Raises InvalidRequest."""
    parsed = _parsed("stream read", options)
    parsed.pop("versioned", None)
    return StreamReadOptions(**parsed)


def parse_stream_write(options: Mapping[str, str], *, is_overwrite: bool) -> StreamWriteOptions:
    """Check the options of a stream that is written. Raises InvalidRequest."""
    parsed = _parsed("stream write", options)
    _check_write(parsed, is_overwrite=is_overwrite)
    return StreamWriteOptions(**parsed, is_overwrite=is_overwrite)


def is_stream_read(options: Mapping[str, str]) -> bool:
    """Whether these can only be options of a stream that is read: Spark asks for a table's columns
    without saying what for."""
    known = {it for option in _options_of("read") for it in _known_names(option)}
    streamed = {it for option in _options_of("stream read") for it in _known_names(option)}
    return any(name.lower() in streamed - known for name in options)


def options_table() -> str:
    """The table as Markdown, for the page of documentation."""
    lines = ["| option | aliases | of | takes | default | meaning |", "|---|---|---|---|---|---|"]
    for it in OPTIONS:
        aliases = ", ".join(f"`{alias}`" for alias in it.aliases)
        of = "all" if it.actions == _ALL else ", ".join(it.actions)
        default = "required" if it.is_required else it.default and f"`{it.default}`"
        lines.append(f"| `{it.name}` | {aliases} | {of} | {it.takes} | {default} | {it.meaning} |")
    return "\n".join(lines) + "\n"


# ---- from the table to values


def _options_of(action: Action) -> Iterator[Option]:
    return (it for it in OPTIONS if action in it.actions)


def _known_names(option: Option) -> list[str]:
    return [it.lower() for it in (option.name, *option.aliases)]


def _parsed(action: Action, options: Mapping[str, str]) -> dict[str, Any]:
    """What was given, by name, without what is Spark's own. Raises InvalidRequest."""
    known = {it: option for option in _options_of(action) for it in _known_names(option)}
    given: dict[str, tuple[str, str]] = {}
    for given_name in sorted(options):
        option = known.get(given_name.lower())
        if option is None:
            raise _unknown(action, given_name)
        if option.name in given:
            other = given[option.name][0]
            raise InvalidRequest(f"the options {other!r} and {given_name!r} are one: give one")
        given[option.name] = given_name, options[given_name]
    for option in _options_of(action):
        if option.is_required and option.name not in given:
            raise InvalidRequest(f"the option {option.name!r} is missing: {_example(option.name)}")
    return {
        option.name: option.parse(*given[option.name])
        for option in _options_of(action)
        if option.name in given and not option.is_spark_s
    }


def _unknown(action: Action, given_name: str) -> InvalidRequest:
    if given_name.lower() in _OF_CATALOG_TABLES:
        return InvalidRequest(_NO_CATALOG_TABLE)
    known = [option.name for option in _options_of(action)]
    known_names = {it: option for option in _options_of(action) for it in _known_names(option)}
    near = difflib.get_close_matches(given_name.lower(), known_names, 1)
    hint = f"; did you mean {known_names[near[0]].name!r}" if near else ""
    listed = ", ".join(sorted(known))
    return InvalidRequest(f"a {action} has no option {given_name!r}{hint}; it has these: {listed}")


def _example(name: str) -> str:
    if name == "url":
        return "give it by option('url', 'http://127.0.0.1:8500')"
    return "give it by load('//folder/table') or save('//folder/table')"


# ---- between options


def _check_ticket(parsed: Mapping[str, Any], *, is_overwrite: bool) -> None:
    """What a load does was said when it began: nothing that a save says changes it. Raises
    InvalidRequest for what is given and is not so."""
    load: LoadTicket = parsed["load_ticket"]
    begun: dict[str, Any] = {
        "atomicity": load.atomicity,
        "write_mode": load.mode,
        "on_conflict": "overwrite" if load.overwrites else "error",
        "start_timestamp": load.stamp,
        "txn_app_id": load.application,
        "txn_version": load.version,
    }
    for name, value in begun.items():
        if name in parsed and parsed[name] != value:
            text = f"the load of 'load_ticket' began with {name} {value!r}, not {parsed[name]!r}"
            raise InvalidRequest(text)
    table = load.table(parsed["path"])
    if table is not None and is_overwrite != bool(table.erased):
        mode = "append" if is_overwrite else "overwrite"
        raise InvalidRequest(f"the load of 'load_ticket' began with mode({mode!r})")


def _check_write(parsed: Mapping[str, Any], *, is_overwrite: bool) -> None:
    """Raises InvalidRequest for options that do not go together."""
    mode: WriteMode = parsed.get("write_mode", "upsert")
    if is_overwrite and mode != "upsert":
        raise InvalidRequest(f"mode('overwrite') does not go with write_mode {mode!r}: use append")
    if "key_range" in parsed and not is_overwrite:
        raise InvalidRequest("the option 'key_range' of a write goes with mode('overwrite') only")
    if parsed.get("atomicity", "full") == "full":
        if parsed.get("durability", "sync") != "sync":
            raise InvalidRequest("durability 'async' goes with atomicity 'none' only")
        return
    if is_overwrite:
        raise InvalidRequest("mode('overwrite') needs atomicity 'full': use mode('append')")
    if mode in ("insert", "update"):
        raise InvalidRequest(f"write_mode {mode!r} needs atomicity 'full'")
    for name in ONLY_FULL:
        if name in parsed:
            raise InvalidRequest(f"the option {name!r} needs atomicity 'full'")
