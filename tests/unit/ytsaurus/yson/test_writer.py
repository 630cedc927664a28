"""How values are written, and what can't be."""

import math
from typing import Any

import pytest

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.yson import Attributed, Format, Uint64, dumps

MIXED = Attributed(
    {"a": [1, Uint64(2), 1.5, None, True, b"x", "é"], "b": {}, "c": Attributed([], {"d": [[]]})},
    {"e": -1, "f": False},
)


def test_a_value_in_all_forms() -> None:
    assert dumps(MIXED) == (
        b"<\x01\x02e=\x02\x01;\x01\x02f=\x04;>{\x01\x02a=[\x02\x02;\x06\x02;"
        b"\x03\x00\x00\x00\x00\x00\x00\xf8?;#;\x05;\x01\x02x;\x01\x04\xc3\xa9;];"
        b"\x01\x02b={};\x01\x02c=<\x01\x02d=[[];];>[];}"
    )
    assert dumps(MIXED, "text") == (
        rb'<"e"=-1;"f"=%false;>{"a"=[1;2u;1.5;#;%true;"x";"\xC3\xA9";];"b"={};"c"=<"d"=[[];];>[];}'
    )
    assert dumps(MIXED, "pretty").decode().splitlines() == [
        "<",
        '    "e" = -1;',
        '    "f" = %false;',
        "> {",
        '    "a" = [',
        "        1;",
        "        2u;",
        "        1.5;",
        "        #;",
        "        %true;",
        '        "x";',
        r'        "\xC3\xA9";',
        "    ];",
        '    "b" = {};',
        '    "c" = <',
        '        "d" = [',
        "            [];",
        "        ];",
        "    > [];",
        "}",
    ]


@pytest.mark.parametrize(
    ("format", "rows", "entries"),
    [
        ("binary", b"{\x01\x02x=\x01\x02b;};#;", b"\x01\x02x=\x02\x02;\x01\x02y=[];"),
        ("text", b'{"x"="b";};\n#;\n', b'"x"=1;\n"y"=[];\n'),
        ("pretty", b'{\n    "x" = "b";\n};\n#;\n', b'"x" = 1;\n"y" = [];\n'),
    ],
)
def test_fragments(format: Format, rows: bytes, entries: bytes) -> None:
    assert dumps(iter([{"x": b"b"}, None]), format, kind="list_fragment") == rows
    assert dumps({"x": 1, "y": ()}, format, kind="map_fragment") == entries


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1 << 63) - 1, b"9223372036854775807"),
        (1 << 63, b"9223372036854775808u"),
        ((1 << 64) - 1, b"18446744073709551615u"),
        (-(1 << 63), b"-9223372036854775808"),
        (1.0, b"1."),
        (-0.0, b"-0."),
        (0.1, b"0.1"),
        (123456789012345680.0, b"123456789012345680."),
        (1.5e-10, b"0.00000000015"),
        (-1e-10, b"-0.0000000001"),
        (1.5e-11, b"1.5e-11"),
        (1e20, b"100000000000000000000."),
        (1e21, b"1e+21"),
        (-1.5e300, b"-1.5e+300"),
        (5e-324, b"5e-324"),
        (math.nan, b"%nan"),
        (math.inf, b"%inf"),
        (-math.inf, b"%-inf"),
        (b"\x00\x0018\x018\x01a", rb'"\0\00018\18\1a"'),
        (b"\x1fg\x1fa\x08", rb'"\x1Fg\037a\x08"'),
        (b"\x7f\xff\"\\\r\n\t~", rb'"\x7F\xFF\"\\\r\n\t~"'),
    ],
)  # fmt: skip
def test_the_spelling_of_scalars(value: Any, text: bytes) -> None:
    assert dumps(value, "text") == text


def test_an_instance_of_a_subclass_is_written_as_its_base_type() -> None:
    class Number(int):
        pass

    class Word(str):
        __slots__ = ()

    class Real(float):
        pass

    class Names(dict[str, int]):
        pass

    value = [Number(1), Word("a"), Real(0.5), Names(b=2)]
    assert dumps(value, "text") == b'[1;"a";0.5;{"b"=2;};]'


def test_attributes_that_are_none_are_left_out() -> None:
    assert dumps(Attributed(1, {}), "text") == b"1"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1 << 64, "does not fit in 64 bits"),
        (-(1 << 63) - 1, "does not fit in 64 bits"),
        pytest.param(10**6000, "does not fit in 64 bits", id="thousands of digits"),
        (Uint64(-1), "does not fit in uint64"),
        (Uint64(1 << 64), "does not fit in uint64"),
        ({1: 2}, "A key of a YSON map must be str or bytes, not int"),
        ({None: 2}, "A key of a YSON map must be str or bytes, not NoneType"),
        ("\ud800", "not valid Unicode"),
        ({"\ud800": 1}, "not valid Unicode"),
        (object(), "can't hold a value of type object"),
        ({1, 2}, "can't hold a value of type set"),
        (Attributed(Attributed(1, {"a": 1}), {"b": 1}), "attributes twice"),
    ],
)
@pytest.mark.parametrize("format", ["binary", "text"])
def test_what_cannot_be_written_is_refused(format: Format, value: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        dumps([value], format)


def test_a_value_inside_of_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append({"a": Attributed(loop, {"b": loop})})
    with pytest.raises(LimitExceeded, match="deeper than 100"):
        dumps(loop)
