"""The options of the Spark connector, without a Spark session and without a cluster.

Owns: what each takes, what is refused, and the table of them in the documentation.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from dodona import LoadTicket
from dodona._core.loads.ticket import LoadTable
from dodona.errors import InvalidRequest
from dodona.timestamps import datetime_from_timestamp
from dodona.types import NULL_TIMESTAMP, Key, LoadId, TableSettings, Timestamp
from pyspark_dodona.option_values import KeyRange
from pyspark_dodona.options import (
    OPTIONS,
    ReadOptions,
    StreamReadOptions,
    StreamWriteOptions,
    WriteOptions,
    is_stream_read,
    options_table,
    parse_read,
    parse_stream_read,
    parse_stream_write,
    parse_write,
)

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
AT = 1 << 60
BASE: Final = {"url": "http://here", "path": "//a/b"}
NONE: Final = {**BASE, "atomicity": "none"}


def read(**options: str) -> ReadOptions:
    return parse_read({**BASE, **options})


def write(**options: str) -> WriteOptions:
    return parse_write({**BASE, **options}, is_overwrite=False)


def test_a_read_without_options_has_the_defaults_of_the_table() -> None:
    assert read() == ReadOptions("http://here", "//a/b")
    written_out = {it.name: it.default for it in OPTIONS if "read" in it.actions and it.default}
    assert written_out
    assert read(**written_out) == read()


def test_a_write_without_options_has_the_defaults_of_the_table() -> None:
    assert write() == WriteOptions("http://here", "//a/b")
    assert write().atomicity == "full"
    written_out = {it.name: it.default for it in OPTIONS if "write" in it.actions and it.default}
    del written_out["atomicity"], written_out["on_conflict"]
    assert write(**written_out) == write()


def test_streams_without_options_have_the_defaults_of_the_table() -> None:
    expected = StreamReadOptions("http://here", "//a/b")
    defaults = {it.name: it.default for it in OPTIONS if "stream read" in it.actions and it.default}
    assert parse_stream_read(BASE) == parse_stream_read({**BASE, **defaults}) == expected
    written = parse_stream_write({**BASE, "checkpointlocation": "x"}, is_overwrite=False)
    assert written == StreamWriteOptions("http://here", "//a/b")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("columns", "a, b,c", ("a", "b", "c")),
        ("timestamp", str(AT), AT),
        ("timestamp", " LATEST ", None),
        ("filter", "k > 1 and 'x' < t", "k > 1 and 'x' < t"),
        ("key_range", '{"lower": [1, "a"], "upper": [2.5]}', KeyRange((1, "a"), (2.5,))),
        ("key_range", '{"upper": [null, true]}', KeyRange(None, (None, True))),
        ("key_range", '{"lower": [{"hex": "00ff"}]}', KeyRange((b"\x00\xff",), None)),
        ("key_range", "{}", KeyRange(None, None)),
        ("split_rows", "1", 1),
        ("versioned", "True", True),
        ("pushdown", "true", True),
        ("pushdown", "false", False),
        ("pushdown", "Auto", None),
        ("lease_s", "3600", 3600),
        ("call_timeout_ms", "86400000", 86_400_000),
    ],
)
def test_the_options_of_a_read_are_parsed(name: str, text: str, expected: Any) -> None:
    assert getattr(read(**{name: text}), name) == expected


@pytest.mark.parametrize(
    "text", ["2026-01-31T23:59:59Z", "2026-01-31T23:59:59+00:00", "2026-02-01 01:29:59.0+01:30"]
)
def test_a_date_and_time_means_the_first_timestamp_of_its_microsecond(text: str) -> None:
    found = read(timestamp=text).timestamp
    assert found is not None
    assert datetime_from_timestamp(found).isoformat() == "2026-01-31T23:59:59+00:00"
    assert datetime_from_timestamp(Timestamp(found - 1)).isoformat() < "2026-01-31T23:59:59+00:00"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda it: it.name)
def test_each_alias_of_an_option_means_the_same_as_its_name(option: Any) -> None:
    ticket = LoadTicket(LoadId(1), "full", "upsert", Timestamp(1), False, 1, ()).to_text()
    texts = {"url": "u", "path": "//p", "key_range": "{}", "txn_version": "1"}
    texts["load_ticket"] = ticket
    default = str(AT) if option.name.endswith("timestamp") else "17"
    text = texts.get(option.name) or option.default or default
    parse: dict[str, Callable[[dict[str, str]], Any]] = {
        "read": parse_read,
        "write": lambda it: parse_write(it, is_overwrite=option.name == "key_range"),
        "stream read": parse_stream_read,
        "stream write": lambda it: parse_stream_write(it, is_overwrite=option.name == "key_range"),
    }
    others = {it: text for it, text in BASE.items() if it != option.name}
    if option.name.startswith("txn"):
        others |= {"txn_app_id": "x", "txn_version": "1"}
        del others[option.name]
    for action in option.actions:
        if action == "stream write":
            others.pop("txn_version", None)
        expected = parse[action]({**others, option.name: text})
        for alias in (*option.aliases, option.name.upper()):
            assert parse[action]({**others, alias.lower(): text}) == expected
            if alias.lower() != option.name.lower():
                with pytest.raises(InvalidRequest, match="are one option: give only one"):
                    parse[action]({**others, option.name: text, alias: text})


def test_options_of_a_write() -> None:
    given = {
        **BASE,
        "key_range": '{"lower": [1]}',
        "on_conflict": "overwrite",
        "start_timestamp": str(AT),
        "txn_app_id": "app",
        "txn_version": "0",
        "lease_s": "10",
        "call_timeout_ms": "2500",
    }
    assert parse_write(given, is_overwrite=True) == WriteOptions(
        "http://here",
        "//a/b",
        on_conflict="overwrite",
        start_timestamp=Timestamp(AT),
        key_range=KeyRange((1,), None),
        txn_app_id="app",
        txn_version=0,
        lease_s=10,
        call_timeout_ms=2500,
        is_overwrite=True,
    )
    assert parse_write(NONE, is_overwrite=False).atomicity == "none"
    assert parse_write({**NONE, "durability": "async"}, is_overwrite=False).durability == "async"
    assert write(write_mode="delete").write_mode == "delete"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "//a"}, "the option 'url' is missing: set it by option"),
        ({"url": "http://here"}, "the option 'path' is missing: set it by load"),
        ({"url": " ", "path": "//a"}, "the option 'url' is empty"),
        (
            {**BASE, "timestmp": "1"},
            "a read has no option 'timestmp'; did you mean 'timestamp'; it has these: call_",
        ),
        ({**BASE, "timestampof": "1"}, "'timestampof'; did you mean 'timestamp'; it has"),
        (
            {**BASE, "zzz": "1"},
            "a read has no option 'zzz'; it has these: call_timeout_ms, ",
        ),
        ({**BASE, "atomicity": "none"}, "a read has no option 'atomicity'; it has these"),
        ({**BASE, "checkpointlocation": "x"}, "a read has no option 'checkpointlocation'"),
        (
            {**BASE, "timestamp": "1", "versionasof": "1"},
            "'timestamp' and 'versionasof' are one option",
        ),
        ({**BASE, "timestamp": "yesterday"}, "takes an integer timestamp, 'latest', or an RFC 333"),
        ({**BASE, "timestamp": "-1"}, "takes an integer timestamp"),
        ({**BASE, "timestamp": "0"}, "not a timestamp of the oracle"),
        ({**BASE, "timestamp": "20260701"}, r"a time zone, such as 2026-07-01T00:00:00Z\."),
        (
            {**BASE, "timestamp": "1782864000"},
            r"No oracle issued timestamp 1782864000 \(its time is 1970-01-01 00:00:01\)",
        ),
        ({**BASE, "timestamp": "9" * 5000}, "not a timestamp of the oracle"),
        ({**BASE, "timestamp": str(1 << 62)}, "not a timestamp of the oracle"),
        (
            {**BASE, "timestamp": "2026-01-01T00:00:00"},
            r"The datetime has no time zone\. Pass one that has a time zone\. The option takes",
        ),
        ({**BASE, "columns": "a,,b"}, "takes names separated by commas"),
        ({**BASE, "filter": ""}, "the option 'filter' is empty"),
        ({**BASE, "key_range": "[1]"}, "takes JSON such as"),
        ({**BASE, "key_range": '{"from": [1]}'}, "takes JSON such as"),
        ({**BASE, "key_range": '{"lower": 1}'}, "takes JSON such as"),
        ({**BASE, "key_range": '{"lower": [NaN]}'}, "NaN is not JSON"),
        ({**BASE, "key_range": '{"lower": [[1]]}'}, r"\[1\] is not a value of a key column"),
        ({**BASE, "key_range": '{"lower": [{"hex": "0"}]}'}, "'0' is Odd-length string"),
        ({**BASE, "key_range": "[" * 100_000}, "takes JSON such as"),
        ({**BASE, "split_rows": "0"}, "takes an integer from 1 to 9223372036854775807, not '0'"),
        ({**BASE, "split_rows": "1e6"}, "takes an integer, not '1e6'"),
        ({**BASE, "lease_s": "3601"}, "takes an integer from 1 to 3600, not '3601'"),
        ({**BASE, "lease_s": "9" * 5000}, "takes an integer from 1 to 3600"),
        ({**BASE, "versioned": "yes"}, "takes 'true' or 'false', not 'yes'"),
        ({**BASE, "pushdown": "on"}, "takes 'true', 'false' or 'auto', not 'on'"),
    ],
)
def test_a_bad_read_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_read(options)


@pytest.mark.parametrize(
    ("options", "is_overwrite", "message"),
    [
        ({**BASE, "timestamp": "1"}, False, "a write has no option 'timestamp'"),
        ({**BASE, "atomicity": "half"}, False, "takes 'full' or 'none', not 'half'"),
        ({**NONE, "durability": "maybe"}, False, "takes 'sync' or 'async', not 'maybe'"),
        ({**BASE, "durability": "async"}, False, "'async' needs atomicity 'none'"),
        ({**BASE, "start_timestamp": "latest"}, False, "takes a timestamp or a time, not 'latest'"),
        ({**BASE, "write_mode": "insert"}, True, "can't have write_mode 'insert'"),
        ({**BASE, "write_mode": "delete"}, True, "can't have write_mode 'delete'"),
        ({**BASE, "key_range": "{}"}, False, "'key_range' of a write needs mode.'overwrite'."),
        ({**BASE, "txn_app_id": "a"}, False, "give both options .*, or neither"),
        ({**BASE, "txn_version": "1"}, False, "give both options .*, or neither"),
        (NONE, True, "mode.'overwrite'. needs atomicity 'full'"),
        ({**NONE, "write_mode": "insert"}, False, "write_mode 'insert' needs atomicity 'full'"),
        ({**NONE, "write_mode": "update"}, False, "write_mode 'update' needs atomicity 'full'"),
        ({**NONE, "on_conflict": "error"}, False, "'on_conflict' needs atomicity 'full'"),
        ({**NONE, "start_timestamp": str(AT)}, False, "'start_timestamp' needs atomicity 'full'"),
        ({**NONE, "txn_app_id": "a", "txn_version": "1"}, False, "needs atomicity 'full'"),
    ],
)
def test_a_bad_write_is_refused(options: dict[str, str], is_overwrite: bool, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_write(options, is_overwrite=is_overwrite)


def test_streams_have_their_own_options() -> None:
    given = {**BASE, "startingtimestamp": str(AT), "maxrowspertrigger": "3", "columns": "a"}
    expected = StreamReadOptions("http://here", "//a/b", ("a",), Timestamp(AT), 3)
    assert parse_stream_read(given) == expected
    begun = {**BASE, "starting_timestamp": "Earliest", "lease_s": "5", "versioned": "true"}
    assert parse_stream_read(begun) == StreamReadOptions(
        "http://here", "//a/b", starting_timestamp=NULL_TIMESTAMP, lease_s=5
    )
    with pytest.raises(InvalidRequest, match="'versioned' takes 'true', not 'false'"):
        parse_stream_read({**BASE, "versioned": "false"})
    with pytest.raises(InvalidRequest, match="a stream read has no option 'timestamp'"):
        parse_stream_read({**BASE, "timestamp": "7"})
    spark_s = {"checkpointlocation": "x", "queryname": "y"}
    written = parse_stream_write({**BASE, **spark_s, "txnappid": "z"}, is_overwrite=True)
    assert written == StreamWriteOptions("http://here", "//a/b", txn_app_id="z", is_overwrite=True)
    for bad in ({"txn_version": "1"}, {"atomicity": "none", "txn_app_id": "z"}):
        with pytest.raises(InvalidRequest):
            parse_stream_write({**BASE, **bad}, is_overwrite=False)


def test_a_stream_read_is_recognized_by_options_that_only_streams_have() -> None:
    assert not is_stream_read(BASE)
    assert not is_stream_read({**BASE, "columns": "a", "timestamp": "1", "nonsense": ""})
    assert is_stream_read({**BASE, "startingTimestamp": "1"})
    assert is_stream_read({**BASE, "max_rows_per_batch": "1"})


def test_the_page_has_the_table_of_options() -> None:
    assert options_table() in (DOCS / "reference" / "spark.md").read_text("utf-8")


def test_an_option_that_contradicts_the_load_ticket_is_refused() -> None:
    """It would be ignored."""
    began = LoadTicket(LoadId(9), "full", "update", Timestamp(AT), False, 1, (), "app", 3)
    given = {
        "write_mode": "update",
        "on_conflict": "error",
        "start_timestamp": str(AT),
        "txn_app_id": "app",
        "txn_version": "3",
    }
    assert write(load_ticket=began.to_text(), **given).load_ticket == began
    assert write(load_ticket=began.to_text()).load_ticket == began
    for name, other in (
        ("write_mode", "upsert"),
        ("on_conflict", "overwrite"),
        ("start_timestamp", str(AT + 1)),
        ("txn_version", "4"),
    ):
        options = {**given, name: other}
        with pytest.raises(InvalidRequest, match=f"'load_ticket' began with {name}"):
            write(load_ticket=began.to_text(), **options)


def test_a_load_that_began_without_a_range_to_erase_overwrites_nothing() -> None:
    table = LoadTable("//a/b", (), (), (), TableSettings())
    for erased, mode in (((), "append"), (((Key(b""), Key(b"\xff")),), "overwrite")):
        tables = (replace(table, erased=erased),)
        began = LoadTicket(LoadId(9), "full", "upsert", Timestamp(9), False, 1, tables)
        options = {**BASE, "load_ticket": began.to_text()}
        is_overwrite = mode == "overwrite"
        assert parse_write(options, is_overwrite=is_overwrite).load_ticket == began
        with pytest.raises(InvalidRequest, match=f"'load_ticket' began with mode.'{mode}'"):
            parse_write(options, is_overwrite=not is_overwrite)


def test_a_ticket_that_is_none_is_refused() -> None:
    for text in ("%", "AAAA", "gA=="):
        with pytest.raises(
            InvalidRequest, match="'load_ticket': the text is not a ticket of a load"
        ):
            parse_write({**BASE, "load_ticket": text}, is_overwrite=False)
