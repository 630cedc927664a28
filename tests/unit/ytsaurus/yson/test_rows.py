"""Rows as they arrive: cut anywhere, limited, and read the fast way where they are alike."""

from collections.abc import Callable
from typing import Any

import pytest

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.yson import Attributed, RowReader, Uint64, YsonLimits, dumps, loads
from dodona_ytsaurus.yson.binary_template import BinaryTemplate
from dodona_ytsaurus.yson.reader import Reader
from dodona_ytsaurus.yson.templates import (
    ALIKE_MIN,
    COLUMNS_MAX,
    NAMES_LENGTH_MAX,
    TEMPLATES_MAX,
)
from unit.ytsaurus.yson.shapes import exact

ROWS: list[Any] = [
    {"key": n * 1009, "u": Uint64(n), "d": n / 7, "s": b"row %d" % n} for n in range(40)
]


def read(data: bytes, size: int = 1 << 20, reader: RowReader | None = None) -> list[Any]:
    reader = reader or RowReader()
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return [row for part in parts for row in reader.feed(part)] + reader.finish()


def outcome_of(read: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return exact(read(data))
    except InvalidRequest as error:
        return type(error), error.message, error.attributes


@pytest.fixture
def slow_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each item that the general reader is asked for, the end included."""
    places: list[int] = []
    item = Reader.item

    def counted(self: Reader, at: int) -> tuple[Any, int] | None:
        places.append(at)
        return item(self, at)

    monkeypatch.setattr(Reader, "item", counted)
    return places


@pytest.mark.parametrize("format", ["binary", "text", "pretty"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1 << 20])
def test_parts_may_be_cut_anywhere(format: Any, size: int) -> None:
    rows = [*ROWS, None, Attributed({"a": [1, {}]}, {"b": True}), 5, Uint64(7), 0.5, True]
    data = dumps(rows, format, kind="list_fragment")
    assert exact(read(data, size)) == exact(rows)
    assert exact(read(data.rstrip(b";\n") + b" \n", size)) == exact(rows)


@pytest.mark.parametrize(
    "value", [b"15", b"15u", b"1.5e3", b"abc", b"%-inf", b'"a\\x41"', b"\x02\x90\x01"]
)
def test_a_scalar_that_arrives_in_two_parts_is_read_whole(value: bytes) -> None:
    whole = read(value + b";")
    for cut in range(len(value) + 1):
        reader = RowReader()
        rows = [*reader.feed(value[:cut]), *reader.feed(value[cut:]), *reader.feed(b";")]
        assert exact([*rows, *reader.finish()]) == exact(whole)


def test_rows_come_with_the_part_that_completes_them() -> None:
    reader = RowReader()
    assert reader.feed(b"{a=1};{a=2};{a=") == [{"a": 1}, {"a": 2}]
    assert reader.feed(b"3};") == [{"a": 3}]
    assert reader.feed(b"") == []
    assert reader.feed(b" {a=4}") == []
    assert reader.finish() == [{"a": 4}]


FAST_FORMATS: pytest.MarkDecorator = pytest.mark.parametrize("format", ["binary", "text"])


@FAST_FORMATS
def test_rows_that_are_alike_are_read_fast(format: Any, slow_reads: list[int]) -> None:
    data = dumps(ROWS, format, kind="list_fragment")
    assert exact(read(data)) == exact(ROWS)
    assert len(slow_reads) == ALIKE_MIN + 2  # and the end, when fed and when finished


@FAST_FORMATS
@pytest.mark.parametrize("strings", ["bytes", "text"])
def test_the_fast_way_knows_the_choices(format: Any, slow_reads: list[int], strings: Any) -> None:
    rows = [{"s": b"\xff" if n % 2 else b"text", "u": Uint64(3 << n)} for n in range(60)]
    reader = RowReader(strings=strings, keeps_uint64=False)
    text: Any = "text" if strings == "text" else b"text"
    expected = [{"s": b"\xff" if n % 2 else text, "u": 3 << n} for n in range(60)]
    data = dumps(rows, format, kind="list_fragment")
    assert exact(read(data, 1 << 20, reader)) == exact(expected)
    assert len(slow_reads) == ALIKE_MIN + 2


def test_a_column_may_turn_out_to_hold_strings(slow_reads: list[int]) -> None:
    rows: list[Any] = [{"a": None, "b": n} for n in range(20)]
    rows += [{"a": b"x" * n, "b": n} for n in range(20)]
    rows += [None, *[{"a": n, "b": b"s"} for n in range(20)]]
    rows += [None, *[{"a": b"s", "b": b"s" * n} for n in range(20)]]
    assert exact(read(dumps(rows, kind="list_fragment"))) == exact(rows)
    assert len(slow_reads) == 3 * ALIKE_MIN + 2 + 2


@FAST_FORMATS
def test_unusual_rows_between_are_read_as_well(format: Any, slow_reads: list[int]) -> None:
    rows: list[Any] = [{"a": [n] if n % 10 == 9 else n, "b": b"x"} for n in range(100)]
    assert exact(read(dumps(rows, format, kind="list_fragment"))) == exact(rows)
    assert len(slow_reads) < 30


@pytest.mark.parametrize(
    "row",
    [
        b"{\x01\x02n=\x06" + b"\xff" * 9 + b"\x02;\x01\x02s=#;};",
        b"{\x01\x02n=\x06" + b"\xff" * 9 + b"\x01;\x01\x02s=#;};",
        b"{\x01\x02n=\x02" + b"\xff" * 9 + b"\x01;\x01\x02s=\x04;};",
        b"{\x01\x02n=\x02\x82\x80\x00;\x01\x02s=\x01\x82\x00a;};",
        b"{\x01\x02n=#;\x01\x02s=\x01\x01;};",
        b"{\x01\x02n=#;\x01\x02s=\x01\x03x;};",
        b"{\x01\x02n=#;\x01\x02s=\x01\x08x;};",
        b"{\x01\x02n=#;\x01\x02s=\x01\xfe\x7f;};",
        b"{\x01\x02n=\x01\x02a;\x01\x02s=\x05;};",
        b"{\x01\x02n=#;\x01\x02s=[];};",
        b"{\x01\x02n=<a=1>#;\x01\x02s=#;};",
        b"{\x01\x02n=#;\x01\x02s=#};",
        b"{\x01\x02n=#;\x01\x02s=#}",
        b"{ \x01\x02n=#;\x01\x02s=#;};",
        b"{\x01\x02n=#;\x01\x02s=#;} ; ",
        b"{\x01\x82\x00n=#;\x01\x02s=#;};",
        b"{n=1;s=%true;};",
        b"{\x01\x02s=#;\x01\x02n=#;};",
        b"{\x01\x02n=#;};",
        b"{\x01\x02n=#;\x01\x02s=#;\x01\x02n=\x05;};",
        b"<a=1>{\x01\x02n=#;\x01\x02s=#;};",
        b"#;",
    ],
)
def test_the_fast_path_for_binary_rows_gives_the_result_of_the_general_reader(row: bytes) -> None:
    usual = b"{\x01\x02n=\x02\x02;\x01\x02s=\x01\x02x;};"
    data = usual * 20 + row
    if data.endswith(b";"):
        data += usual
    assert outcome_of(read, data) == outcome_of(lambda it: loads(it, kind="list_fragment"), data)


@pytest.mark.parametrize(
    "row",
    [
        b'{"n"=18446744073709551615u;"s"="";};',
        b'{"n"=18446744073709551616u;"s"="";};',
        b'{"n"=9223372036854775807;"s"=-9223372036854775808;};',
        b'{"n"=9223372036854775808;"s"=#;};',
        b'{"n"=-9223372036854775809;"s"=#;};',
        b'{"n"=-1u;"s"=#;};',
        b'{"n"=1.5u;"s"=#;};',
        b'{"n"=1e5u;"s"=#;};',
        b'{"n"=1e5;"s"=-2.E+9;};',
        b'{"n"=1e99999;"s"=1e999;};',
        b'{"n"=' + b"1" * 21 + b';"s"=#;};',
        b'{"n"=1.' + b"1" * 60 + b';"s"=#;};',
        b'{"n"=.5;"s"=+5;};',
        b'{"n"=5.;"s"=007;};',
        b'{"n"=%nan;"s"=%-inf;};',
        b'{"n"=%nope;"s"=%true;};',
        b'{"n"=%falsest;"s"=%true;};',
        b'{"n"=%inf;"s"=word;};',
        b'{"n"="\\x41\\7\\"";"s"="\\\\";};',
        b'{"n"="\\U00110000";"s"="";};',
        b'{"n"="\\";"s"="";};',
        b'{"n"=#;"s"="\xff";};',
        b'{"n"=[1];"s"=#;};',
        b'{"n"=<a=1>1;"s"=#;};',
        b"{n=1;s=#};",
        b'{n=1;"s"=#}',
        b'{"\\x6e"=1;"s"=#;};',
        b'{"n"=1;"s"=#;;};',
        b'{"n"=1;"s"=#;"n"=2;};',
        b'{"s"=#;"n"=1;};',
        b'{"n"=1;};',
        b'{"n" = 1; "s" = #; } ;',
        b'\t{"n"=1;"s"=#;};',
        b' \n {"n"=1;"s"=#;}; \n ',
        b'{"n"=1;"s"=#;',
        b'{"n"=1;"s"="',
        b"{\x01\x02n=\x05;\x01\x02s=#;};",
        b'{"n"=\x02\x04;"s"=\x01\x02a;};',
    ],
)
def test_the_fast_path_for_text_rows_gives_the_result_of_the_general_reader(row: bytes) -> None:
    usual = b'{"n"=1;"s"="x";};\n'
    data = usual * 20 + row
    if data.endswith(b";"):
        data += usual
    assert outcome_of(read, data) == outcome_of(lambda it: loads(it, kind="list_fragment"), data)


@pytest.mark.parametrize("name", ["a", "a-b", "a b", "a.b", 'q"', "\\", "\n", "ä", "", "\x00"])
@FAST_FORMATS
def test_any_name_of_a_column_is_read_fast(format: Any, name: str, slow_reads: list[int]) -> None:
    rows = [{name: n} for n in range(20)]
    assert exact(read(dumps(rows, format, kind="list_fragment"))) == exact(rows)
    assert len(slow_reads) == ALIKE_MIN + 2


def test_rows_as_people_write_them_are_read_fast(slow_reads: list[int]) -> None:
    data = b"".join(b'{key=%d;name="x"};\n' % n for n in range(20))
    assert read(data) == [{"key": n, "name": b"x"} for n in range(20)]
    assert len(slow_reads) == ALIKE_MIN + 2


def test_the_fast_path_leaves_a_string_of_negative_length_to_the_general_reader() -> None:
    """Else it would end where the row before does, and reading would begin again there."""
    template = BinaryTemplate(("s",), frozenset("s"), 100, "bytes", keeps_uint64=True)
    usual = b"{\x01\x02s=#;};"
    rows: list[Any] = []
    assert template.read(usual + b"{\x01\x02s=\x01\x13;};", 0, rows, 100) == len(usual)
    assert rows == [{"s": None}]


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Grows with each template that is made, by its names. None of them reads anything."""
    made: list[Any] = []
    template = "dodona_ytsaurus.yson.templates.BinaryTemplate"
    monkeypatch.setattr(template + ".read", lambda self, data, at, rows, rows_max: at)
    monkeypatch.setattr(template + ".__init__", lambda self, names, *rest: made.append(names))
    monkeypatch.setattr(template + ".names", ())
    return made


def test_templates_are_not_made_without_end(templates: list[tuple[str, ...]]) -> None:
    rows = [{f"column {n}": 1} for n in range(100) for _ in range(ALIKE_MIN)]
    read(dumps(rows, kind="list_fragment"))
    assert len(templates) == TEMPLATES_MAX


def test_templates_are_not_made_of_any_length(templates: list[tuple[str, ...]]) -> None:
    for names in ([f"{n}" for n in range(COLUMNS_MAX + 1)], ["x" * (NAMES_LENGTH_MAX + 1)], []):
        read(dumps([dict.fromkeys(names)] * 20, kind="list_fragment"))
    assert templates == []


def test_a_malformed_row_is_reported_with_its_offset_in_the_stream() -> None:
    data = dumps(ROWS, kind="list_fragment")
    reader = RowReader()
    for at in range(0, len(data), 100):
        reader.feed(data[at : at + 100])
    with pytest.raises(InvalidRequest, match="malformed") as caught:
        reader.feed(b"{a=1};{a==};")
    assert caught.value.attributes == {"offset": len(data) + 9}


def test_a_stream_that_ends_too_early_is_refused() -> None:
    reader = RowReader()
    reader.feed(b"{a=1};{a=")
    with pytest.raises(InvalidRequest, match="ends too early") as caught:
        reader.finish()
    assert caught.value.attributes == {"offset": 9}


@pytest.mark.parametrize("size", [1, 10, 1 << 20])
def test_an_item_is_limited_in_bytes(size: int) -> None:
    limits = YsonLimits(bytes_max=100)
    fits, exceeds = (b'"' + b"x" * length + b'";' for length in (97, 98))
    assert len(read(fits * 20, size, RowReader(limits))) == 20
    with pytest.raises(LimitExceeded, match="more than 100 bytes"):
        read(fits * 20 + exceeds, size, RowReader(limits))


def test_an_item_over_the_limit_is_refused_before_all_its_bytes_arrive() -> None:
    with pytest.raises(LimitExceeded, match="more than 100 bytes"):
        RowReader(YsonLimits(bytes_max=100)).feed(b"{a=\x01\xfe\xff\x03")
    with pytest.raises(LimitExceeded, match="more than 100 bytes"):
        read(b'"' + b"x" * 100, 1, RowReader(YsonLimits(bytes_max=100)))


@FAST_FORMATS
def test_the_fast_way_keeps_the_limit_in_bytes(format: Any) -> None:
    rows = [{"a": b"x" * length} for length in [*[5] * 20, 90, 91]]
    data = dumps(rows, format, kind="list_fragment")
    longest = len(dumps(rows[-1:], format, kind="list_fragment"))
    assert read(data, 1 << 20, RowReader(YsonLimits(bytes_max=longest))) == rows
    with pytest.raises(LimitExceeded):
        read(data, 1 << 20, RowReader(YsonLimits(bytes_max=longest - 1)))


@pytest.mark.parametrize("size", [10, 1 << 20])
def test_items_are_limited_in_number(size: int) -> None:
    data = dumps(ROWS, kind="list_fragment")
    assert len(read(data, size, RowReader(YsonLimits(items_max=40)))) == 40
    with pytest.raises(LimitExceeded, match="more than 39 items"):
        read(data, size, RowReader(YsonLimits(items_max=39)))


def test_values_are_limited_in_each_item() -> None:
    limits = YsonLimits(values_max=4)
    assert len(read(dumps(ROWS, kind="list_fragment"), 100, RowReader(limits))) == 40
    with pytest.raises(LimitExceeded, match="more than 4 values"):
        read(b"{a=1};[1;2;3;4;5];", 100, RowReader(limits))


def test_a_finished_or_failed_row_reader_cannot_be_used_again() -> None:
    finished, broken = RowReader(), RowReader()
    finished.finish()
    with pytest.raises(InvalidRequest):
        broken.feed(b"};")
    for reader in (finished, broken):
        with pytest.raises(AssertionError):
            reader.feed(b"1;")
        with pytest.raises(AssertionError):
            reader.finish()
