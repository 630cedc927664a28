"""The options of reads, writes and streams, and the values that they accept.

Owns: the table of all options, and the checks between options. The parsers, the errors and the page
in docs use the table. Spark passes names in lower case, and values as text.
Must not connect to a server: a wrong option is refused before a call to the cluster.
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
"""The longest lease that cells allow (see their `reader_lease_ms_max`)."""
BATCH_ROWS: Final = 1_000_000
_OF_CATALOG_TABLES: Final = frozenset({"owner", "provider"})
"""The options that Spark adds to those of `create table ... using`."""
_NO_CATALOG_TABLE: Final = (
    "Spark passes no options to the reader of a table in its own catalog. Instead of create table, "
    "use create temporary view ... using dodona options (path '//folder/table', url 'http://...')"
)
_INT64_MAX: Final = (1 << 63) - 1

_READS: Final[tuple[Action, ...]] = ("read", "stream read")
_WRITES: Final[tuple[Action, ...]] = ("write", "stream write")
_STREAMS: Final[tuple[Action, ...]] = ("stream read", "stream write")
_ALL: Final[tuple[Action, ...]] = ("read", "write", "stream read", "stream write")


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table. `default` is the text that a user would write for it. "" means no
    default."""

    name: str
    aliases: tuple[str, ...]
    actions: tuple[Action, ...]
    parse: Callable[[str, str], Any]
    takes: str
    meaning: str
    default: str = ""
    is_required: bool = False
    is_spark_s: bool = False
    """Whether the option is Spark's own. Spark passes it, and it has no effect here."""


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
        "the table; `load(...)` and `save(...)` set it",
        is_required=True,
    ),
    Option(
        "timestamp",
        ("timestampAsOf", "versionAsOf"),
        ("read",),
        values.moment,
        "an integer, `latest`, or an RFC 3339 time",
        "reads the table as of this time",
        "latest",
    ),
    Option(
        "columns",
        (),
        _READS,
        values.names,
        "names, separated by commas",
        "reads only these columns; the default is all",
    ),
    Option(
        "filter",
        (),
        ("read",),
        values.text,
        "an SQL condition",
        "reads only rows that match; conditions on the key narrow the range of keys",
    ),
    Option(
        "key_range",
        ("keyRange",),
        ("read", "write", "stream write"),
        values.key_range,
        '`{"lower": [...], "upper": [...]}`',
        "only keys with lower ≤ key < upper: lists of leading key values, both optional; "
        "in a write: the range that `mode('overwrite')` replaces",
    ),
    Option(
        "split_rows",
        ("splitRows",),
        ("read",),
        values.integer(1, _INT64_MAX),
        "an integer",
        "about how many rows a partition has at most; a tablet has one or more partitions",
        str(SPLIT_ROWS),
    ),
    Option(
        "versioned",
        (),
        ("read",),
        values.flag,
        "`true` or `false`",
        "reads every version that is left, not only the newest; adds the columns of a stream",
        "false",
    ),
    Option(
        "versioned",
        (),
        ("stream read",),
        values.one_of(("true",)),
        "`true`",
        "reads changes; required without `starting_timestamp` and `max_rows_per_batch`",
        "true",
    ),
    Option(
        "pushdown",
        (),
        ("read",),
        values.flag_or_auto,
        "`true`, `false` or `auto`",
        "whether reads apply filters of the DataFrame; `auto`: as Spark's setting "
        "`spark.sql.python.filterPushdown.enabled`, which must be on for `true`",
        "auto",
    ),
    Option(
        "lease_s",
        ("leaseSeconds",),
        _ALL,
        values.integer(1, LEASE_S_MAX),
        f"seconds, at most {LEASE_S_MAX}",
        "how long the cluster keeps the snapshot or the load without a renewal by the job",
        str(LEASE_S),
    ),
    Option(
        "call_timeout_ms",
        ("callTimeoutMs",),
        _ALL,
        values.integer(1, CALL_TIMEOUT_MS_MAX),
        "milliseconds",
        "how long each call to a server may take, as in `dodona.connect`",
    ),
    Option(
        "atomicity",
        (),
        _WRITES,
        values.one_of(ATOMICITIES),
        "`full` or `none`",
        "`full`: all rows become visible together or not at all; `none`: rows become visible as "
        "they arrive; must be the table's atomicity",
        "full",
    ),
    Option(
        "durability",
        (),
        _WRITES,
        values.one_of(DURABILITIES),
        "`sync` or `async`",
        "`sync`: rows are on disk when the job ends; `async`: with atomicity `none` only",
        "sync",
    ),
    Option(
        "write_mode",
        ("writeMode",),
        _WRITES,
        values.one_of(WRITE_MODES),
        "`upsert`, `insert`, `update` or `delete`",
        "`insert`: no row may exist; `update`: each row must exist, and absent columns keep their "
        "values; `delete`: by key",
        "upsert",
    ),
    Option(
        "on_conflict",
        ("onConflict",),
        _WRITES,
        values.one_of(ON_CONFLICT),
        "`error` or `overwrite`",
        "what happens if another writer changed a row after the start timestamp",
        "error",
    ),
    Option(
        "start_timestamp",
        ("startTimestamp",),
        ("write",),
        values.issued,
        "an integer, or an RFC 3339 time",
        "later changes of the same rows conflict; the default is the beginning of the save",
    ),
    Option(
        "txn_app_id",
        ("txnAppId",),
        _WRITES,
        values.text,
        "a name",
        "the application that numbers its writes; needs `txn_version`, except in a stream, where "
        "the version is the number of the batch",
    ),
    Option(
        "txn_version",
        ("txnVersion",),
        ("write",),
        values.integer(0, _INT64_MAX),
        "an integer",
        "skips the write if this or a higher version was published; needs `txn_app_id`",
    ),
    Option(
        "load_ticket",
        ("loadTicket",),
        ("write",),
        values.ticket,
        "text",
        "the load of the write, if it began before, as with `bulk_write`",
    ),
    Option(
        "starting_timestamp",
        ("startingTimestamp",),
        ("stream read",),
        values.beginning,
        "an integer, `earliest`, `latest`, or an RFC 3339 time",
        "reads changes after this time; `earliest`: all changes that are left",
        "latest",
    ),
    Option(
        "max_rows_per_batch",
        ("maxRowsPerTrigger",),
        ("stream read",),
        values.integer(1, _INT64_MAX),
        "an integer",
        "about how many rows a batch has at most",
        str(BATCH_ROWS),
    ),
    Option(
        "checkpointLocation",
        (),
        _STREAMS,
        values.text,
        "a folder",
        "Spark's own: where a stream keeps its progress",
        is_spark_s=True,
    ),
    Option(
        "queryName",
        (),
        _STREAMS,
        values.text,
        "a name",
        "Spark's own: the name of the stream",
        is_spark_s=True,
    ),
)
"""All options."""

ONLY_FULL: Final = ("on_conflict", "start_timestamp", "txn_app_id", "txn_version", "key_range")
"""Each of these options needs atomicity full."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a batch read. None means: a fresh timestamp, all columns, no condition, all
    keys. For `pushdown`, it means Spark's setting."""

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
    """The options of a batch write. With `is_overwrite` and no key range, it replaces all rows.
    `start_timestamp` None means a fresh one. The application's id and version are both None or both
    set."""

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
    """The options of a stream read. `starting_timestamp` None means the beginning of the stream.
    NULL_TIMESTAMP means all versions that are left."""

    url: str
    path: str
    columns: tuple[str, ...] | None = None
    starting_timestamp: Timestamp | None = None
    max_rows_per_batch: int = BATCH_ROWS
    lease_s: int = LEASE_S
    call_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StreamWriteOptions:
    """The options of a stream write. `txn_app_id` None means the id of the query."""

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
        raise InvalidRequest("give both options 'txn_app_id' and 'txn_version', or neither")
    _check_write(parsed, is_overwrite=is_overwrite)
    if "load_ticket" in parsed:
        _check_ticket(parsed, is_overwrite=is_overwrite)
    return WriteOptions(**parsed, is_overwrite=is_overwrite)


def parse_stream_read(options: Mapping[str, str]) -> StreamReadOptions:
    """Check the options of a stream read. Raises InvalidRequest."""
    parsed = _parsed("stream read", options)
    parsed.pop("versioned", None)
    return StreamReadOptions(**parsed)


def parse_stream_write(options: Mapping[str, str], *, is_overwrite: bool) -> StreamWriteOptions:
    """Check the options of a stream write. Raises InvalidRequest."""
    parsed = _parsed("stream write", options)
    _check_write(parsed, is_overwrite=is_overwrite)
    return StreamWriteOptions(**parsed, is_overwrite=is_overwrite)


def is_stream_read(options: Mapping[str, str]) -> bool:
    """Return whether an option belongs to stream reads only. Spark asks for the columns of a table,
    and does not say for which action."""
    known = {it for option in _options_of("read") for it in _known_names(option)}
    streamed = {it for option in _options_of("stream read") for it in _known_names(option)}
    return any(name.lower() in streamed - known for name in options)


def options_table() -> str:
    """Return the table of options in Markdown, for the page in docs."""
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
    """Return the given values by name, without Spark's own options. Raises InvalidRequest."""
    known = {it: option for option in _options_of(action) for it in _known_names(option)}
    given: dict[str, tuple[str, str]] = {}
    for given_name in sorted(options):
        option = known.get(given_name.lower())
        if option is None:
            raise _unknown(action, given_name)
        if option.name in given:
            other = given[option.name][0]
            raise InvalidRequest(f"{other!r} and {given_name!r} are one option: give only one")
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
        return "set it by option('url', 'http://127.0.0.1:8500')"
    return "set it by load('//folder/table') or save('//folder/table')"


# ---- between options


def _check_ticket(parsed: Mapping[str, Any], *, is_overwrite: bool) -> None:
    """Check that a save agrees with the load that its ticket names, because a save can't change the
    load. Raises InvalidRequest."""
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
    """Check that the options agree with each other. Raises InvalidRequest."""
    mode: WriteMode = parsed.get("write_mode", "upsert")
    if is_overwrite and mode != "upsert":
        raise InvalidRequest(f"mode('overwrite') can't have write_mode {mode!r}: use append")
    if "key_range" in parsed and not is_overwrite:
        raise InvalidRequest("the option 'key_range' of a write needs mode('overwrite')")
    if parsed.get("atomicity", "full") == "full":
        if parsed.get("durability", "sync") != "sync":
            raise InvalidRequest("durability 'async' needs atomicity 'none'")
        return
    if is_overwrite:
        raise InvalidRequest("mode('overwrite') needs atomicity 'full': use mode('append')")
    if mode in ("insert", "update"):
        raise InvalidRequest(f"write_mode {mode!r} needs atomicity 'full'")
    for name in ONLY_FULL:
        if name in parsed:
            raise InvalidRequest(f"the option {name!r} needs atomicity 'full'")
