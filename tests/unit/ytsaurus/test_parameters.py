"""Parameters: where they come from in YSON and JSON, typed access, and paths."""

import json
from typing import Any

import pytest

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.commands.api import COMMANDS
from dodona_ytsaurus.terms.parameters import (
    Parameters,
    YtPath,
    decode_parameters,
    parse_path,
)
from dodona_ytsaurus.terms.refusals import ALWAYS, OF_COMMAND, refuse
from dodona_ytsaurus.yson import Attributed, Uint64


def mangled(value: Any) -> bytes:
    """JSON as the client writes it into headers: a character for each byte of UTF-8, escaped."""
    if isinstance(value, str):
        return json.dumps(value.encode().decode("latin-1")).encode()
    inner = b",".join(mangled(k) + b":" + mangled(v) for k, v in value.items())
    return b"{" + inner + b"}"


# ---- decoding


def test_yson_of_the_real_client() -> None:
    content = (
        b'{"path"=<"append"=%true;>"//tmp/\\xD0\\x96";"timestamp"=123u;"n"=-5;"f"=1.5;"e"=#;'
        b'"output_format"=<"format"="binary";>"yson";"flag"=%false;"l"=[1;"a";];}'
    )
    assert decode_parameters(content, is_json=False) == {
        "path": Attributed("//tmp/Ж", {"append": True}),
        "timestamp": Uint64(123),
        "n": -5,
        "f": 1.5,
        "e": None,
        "output_format": Attributed("yson", {"format": "binary"}),
        "flag": False,
        "l": [1, "a"],
    }


def test_json_of_the_real_client() -> None:
    content = mangled({"path": "//tmp/Ж", "é": {"ж": "\U0001f600"}})
    assert content.isascii()
    decoded = decode_parameters(content, is_json=True)
    assert decoded == {"path": "//tmp/Ж", "é": {"ж": "\U0001f600"}}
    content = b'{"f":{"$value":"json","$attributes":{"encode_utf8":false}},"$$x":{"$$y":[1]}}'
    assert decode_parameters(content, is_json=True) == {
        "f": Attributed("json", {"encode_utf8": False}),
        "$x": {"$y": [1]},
    }
    content = b'{"p":{"$value":"x","$attributes":{}}}'
    assert decode_parameters(content, is_json=True) == {"p": "x"}


@pytest.mark.parametrize("text", ["Ж", "é", "\u00ff", "\U0001f600", "a\u0416é"])
def test_json_parameters_in_plain_unicode_are_read_unchanged(text: str) -> None:
    """As people send it by hand."""
    content = json.dumps({"path": text}).encode()
    assert decode_parameters(content, is_json=True) == {"path": text}


def test_bytes_that_are_no_text_stay_bytes() -> None:
    assert decode_parameters(b'{"v"="\\xFF"}', is_json=False) == {"v": b"\xff"}


@pytest.mark.parametrize("is_json", [True, False])
@pytest.mark.parametrize(
    "content", [b"5", b"[]", b"", b"{", b'"x"', b"\xff", b"{}x", b"#", b"null"]
)
def test_parameters_that_are_not_a_map_are_refused(content: bytes, is_json: bool) -> None:
    with pytest.raises(InvalidRequest):
        decode_parameters(content, is_json=is_json)


def test_parameters_that_are_too_deep_too_many_or_invalid_are_refused() -> None:
    for content, is_json in (
        (b"{a=" + b"[" * 65 + b"]" * 65 + b"}", False),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", True),
        (b"{a=[" + b"1;" * 200_001 + b"]}", False),
    ):
        with pytest.raises((LimitExceeded, InvalidRequest)):
            decode_parameters(content, is_json=is_json)
    for bad in (b'{"a":{"$value":1,"$attributes":2}}', b'{"a":' + b"1" * 5_000 + b"}"):
        with pytest.raises(InvalidRequest):
            decode_parameters(bad, is_json=True)


# ---- access

GIVEN = Parameters(
    {
        "text": "a",
        "texts": ["a", Attributed("b", {"x": 1})],
        "number": 5,
        "digits": "17",
        "unsigned": Uint64(7),
        "flag": True,
        "word": "false",
        "map": {"a": 1},
        "with": Attributed("a", {"x": 1}),
        "nothing": None,
        "float": 1.5,
        "bytes": b"\xff",
    }
)


def test_typed_access() -> None:
    assert GIVEN.text("text") == GIVEN.text("with") == "a"
    assert GIVEN.text("missing", "b") == "b"
    assert GIVEN.optional_text("missing") is GIVEN.optional_text("nothing") is None
    assert (GIVEN.number("number"), GIVEN.number("digits"), GIVEN.number("unsigned")) == (5, 17, 7)
    assert GIVEN.number("missing") is None
    assert GIVEN.flag("flag") is True
    assert GIVEN.flag("word") is False
    assert GIVEN.flag("missing", default=True) is True
    assert GIVEN.texts("texts") == ["a", "b"]
    assert GIVEN.texts("missing") is GIVEN.items("missing") is None
    assert GIVEN.map("map") == {"a": 1}
    assert GIVEN.map("missing") == {}
    assert "text" in GIVEN
    assert "nothing" not in GIVEN
    assert "missing" not in GIVEN


@pytest.mark.parametrize(
    ("access", "name"),
    [
        ("text", "number"),
        ("text", "missing"),
        ("text", "nothing"),
        ("text", "bytes"),
        ("number", "text"),
        ("number", "float"),
        ("number", "flag"),
        ("flag", "number"),
        ("flag", "text"),
        ("items", "text"),
        ("items", "map"),
        ("texts", "map"),
        ("map", "texts"),
        ("path", "number"),
    ],
)
def test_a_parameter_of_the_wrong_type_is_named(access: str, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'{name}'"):
        getattr(GIVEN, access)(name)


def test_a_list_of_texts_has_texts_only() -> None:
    with pytest.raises(InvalidRequest, match="a list of texts"):
        Parameters({"names": ["a", 5]}).texts("names")


# ---- paths


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("//a/b", YtPath("//a/b")),
        ("/", YtPath("/")),
        ("//@", YtPath("/", "")),
        ("//@x", YtPath("/", "x")),
        ("/@x", YtPath("/", "x")),
        ("//a/@", YtPath("//a", "")),
        ("//a/@x", YtPath("//a", "x")),
        ("//a/@x/y/0", YtPath("//a", "x", ("y", "0"))),
        ("//a&", YtPath("//a")),
        ("//a&/@x", YtPath("//a", "x")),
        ("<append=%true>//a", YtPath("//a")),
        ("#1-2-3-4/@timeout", YtPath("#1-2-3-4", "timeout")),
    ],
)
def test_paths(text: str, path: YtPath) -> None:
    assert parse_path(text) == path


def test_the_text_of_a_path_ends_at_an_attribute_and_omits_an_ampersand() -> None:
    assert parse_path("//a/@x/y").text == "//a/@x"
    assert parse_path("//a&").text == "//a"


@pytest.mark.parametrize("text", ["", "<>", "<a", "<a=1", "<5>//a", "<a=1>", "//a{b}", "//a[1:2]"])
def test_paths_that_are_none(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_path(text)


def test_a_path_that_chooses_a_part_is_refused() -> None:
    for value in (
        Attributed("//a", {"columns": ["x"]}),
        Attributed("//a", {"ranges": []}),
        "<columns=[x]>//a",
    ):
        with pytest.raises(InvalidRequest, match="A path can't select rows or columns"):
            Parameters({"path": value}).path()
    assert Parameters({"path": Attributed("//a", {"append": True})}).path() == YtPath("//a")


def test_a_table_is_no_attribute() -> None:
    assert Parameters({"path": "//a"}).table() == "//a"
    with pytest.raises(InvalidRequest, match="that of an attribute"):
        Parameters({"path": "//a/@x"}).table()


# ---- refusals

NOTHING: tuple[Any, ...] = (None, False, [], "", 0)


def test_an_unsupported_parameter_that_changes_the_outcome_is_refused() -> None:
    for command, names in {"get": ALWAYS, **OF_COMMAND}.items():
        assert command in COMMANDS
        for name in names:
            for nothing in NOTHING:
                refuse(command, Parameters({name: nothing}))
            for something in (True, ["1-2-3-4"], "x", 5, {"a": 1}):
                with pytest.raises(InvalidRequest, match=name):
                    refuse(command, Parameters({name: something}))
    refuse("get", Parameters({"cell_id": "x", "unknown": 1}))
