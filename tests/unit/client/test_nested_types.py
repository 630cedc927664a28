"""Lists, structs and dicts: their names, the values they take, and where a value is refused."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy
import pytest

from dodona.errors import SchemaViolation
from dodona.schema import Column, TableSchema
from dodona_wire.rows.logical_types import is_wider_type, logical_type
from dodona_wire.rows.logical_values import check_of, load_of, store_of
from dodona_wire.rows.text_format import format_value, read_value, value_of_text
from dodona_wire.rows.values import VALUE_BYTES_MAX
from suite.column_values import NESTED, an_example


@pytest.mark.parametrize("name", NESTED)
def test_a_name_of_a_type_has_one_spelling(name: str) -> None:
    assert logical_type(name).name == name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (" list <\tint64 > ", "list<int64>"),
        ("struct< a : decimal( 10 , 2 ),b:utf8>", "struct<a:decimal(10,2),b:utf8>"),
        ('struct<"a":int8>', "struct<a:int8>"),
        ('struct<"a ""b"" ,:<>":int8>', 'struct<"a ""b"" ,:<>":int8>'),
        ("struct<größe:int8>", 'struct<"größe":int8>'),
        ("struct<list:int8,optional:int8>", "struct<list:int8,optional:int8>"),
        ("list<optional<list<optional<any>>>>", "list<optional<list<optional<any>>>>"),
    ],
)
def test_spaces_and_quotes_do_not_matter(given: str, name: str) -> None:
    (column,) = TableSchema.parse(
        [Column("k", "int64", "ascending"), Column("v", given)]
    ).value_columns
    assert column.type == name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list", "write a type with types inside as list<int64>"),
        ("array<int8>", "list, struct, dict, not 'array'. Write list<int64>"),
        ("tuple<int8>", "list, struct, dict, not 'tuple'"),
        ("map<utf8,int8>", "Write dict<utf8,int64>"),
        ("list<int>", "Did you mean int8?"),
        ("list<int8", "needs '>' at character 10, not its end"),
        ("list<int8>>", "needs nothing more at character 11, not '>'"),
        ("list<int8,int8>", "write a list as list<int64>: it has 1 types inside"),
        ("list<>", "needs a type at character 6"),
        ("struct<>", "needs the name of a field"),
        ("struct<int8>", "needs ':' at character 12"),
        ("struct<a:int8,a:utf8>", "two fields of the name 'a'"),
        ('struct<"":int8>', "1 to 256 characters"),
        (f'struct<"{"a" * 257}":int8>', "1 to 256 characters"),
        ("dict<int8>", "it has 2 types inside"),
        ("dict<date,int8>", "the keys of a dict are one of utf8"),
        ("dict<optional<utf8>,int8>", "the keys of a dict are one of utf8"),
        ("optional<int8>", "Columns and optional types may be null anyway"),
        ("list<optional<optional<int8>>>", "may be null anyway"),
        ("list<decimal(5)>", "write a decimal as decimal(10,2)"),
        ("list<?>", "needs a word at character 6, not '?'"),
        ("list<" * 17 + "int8" + ">" * 17, "nested at most 16 deep"),
        (f"list<{' ' * 4096}int8>", "at most 4096 characters"),
        (f"struct<{','.join(f'ä{it}:int8' for it in range(420))}>", "at most 4096 characters"),
    ],
)
def test_a_wrong_name_is_refused_with_its_place(name: str, text: str) -> None:
    with pytest.raises(SchemaViolation) as caught:
        TableSchema.parse([Column("k", "int64", "ascending"), Column("v", name)])
    assert text in str(caught.value)
    assert caught.value.attributes["column"] == "v"


def test_types_are_nested_up_to_16_deep() -> None:
    name = "dict<utf8," * 16 + "any" + ">" * 16
    value: Any = {"a": [[[1]]]}
    for _ in range(16):
        value = {"k": value}
    kind = logical_type(name)
    stored = store_of(kind)(value, "v")
    assert check_of(kind)(stored, "v") == stored
    assert load_of(kind)(stored) == value


@pytest.mark.parametrize("aggregate", ["sum", "min", "max"])
def test_a_nested_column_is_no_key_and_has_no_aggregate_but_first(aggregate: Any) -> None:
    key = Column("k", "int64", "ascending")
    TableSchema.parse([key, Column("v", "list<int8>", aggregate="first")])
    with pytest.raises(SchemaViolation, match=f"{aggregate} aggregates"):
        TableSchema.parse([key, Column("v", "list<int8>", aggregate=aggregate)])
    with pytest.raises(SchemaViolation, match="a key column can't be"):
        TableSchema.parse([Column("k", "list<int8>", "ascending"), Column("v", "int8")])


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("list<int8>", (1, -128), [1, -128]),
        ("list<int64>", numpy.array([1, 2]), [1, 2]),
        ("list<list<double>>", numpy.array([[0.5], [2.0]]), [[0.5], [2.0]]),
        ("list<double>", [1, 0.5], [1.0, 0.5]),
        ("list<optional<date>>", [date(1970, 1, 3), None], [2, None]),
        ("list<timestamp64>", [datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)], [-1_000_000]),
        ("struct<b:string,a:optional<utf8>>", {"b": "ä"}, {"b": "ä".encode(), "a": None}),
        ("struct<b:int8,a:int8>", {"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ("dict<string,decimal(5,2)>", {"a": 1}, [[b"a", b"\x80\x00\x00\x64"]]),
        ("dict<int8,any>", [(1, {"x": (2,)})], [[1, {"x": [2]}]]),
        ("list<any>", [[], {}], [[], {}]),
    ],
)
def test_a_value_has_this_stored_form(name: str, value: Any, stored: Any) -> None:
    kind = logical_type(name)
    found = store_of(kind)(value, "c")
    assert repr(found) == repr(stored)
    assert check_of(kind)(found, "c") == stored


PRICES = "list<struct<price:decimal(10,2),on:optional<date>>>"


@pytest.mark.parametrize(
    ("name", "value", "place", "kind", "text"),
    [
        ("list<int64>", "12", None, None, "'c' takes a list, not str"),
        ("list<int64>", {1}, None, None, "'c' takes a list, not set"),
        ("list<int8>", [1, 300], "c[1]", "int8", "'c[1]' takes -128 to 127"),
        ("list<int8>", [1, True], "c[1]", "int8", "'c[1]' takes an int, not bool"),
        ("list<int8>", [1, None], "c[1]", "int8", "'c[1]' is missing or null"),
        ("list<any>", [None], "c[0]", "any", "'c[0]' is missing or null"),
        ("list<any>", [{"a": date(2000, 1, 1)}], "c[0]", "any", "takes None, numbers"),
        ("list<utf8>", ["a", "\ud800"], "c[1]", "utf8", "not Unicode"),
        (PRICES, [{"price": 1}] * 3 + [{"price": 1.5}], "c[3].price", "decimal(10,2)",
         "'c[3].price' takes a decimal.Decimal or an int, not float"),
        (PRICES, [{"price": 1, "on": date(1969, 1, 1)}], "c[0].on", "date", "fit in date"),
        (PRICES, [{}], "c[0].price", "decimal(10,2)", "is missing or null"),
        (PRICES, [{"price": 1, "prize": 1}], "c[0]", PRICES[5:-1],
         "has no field prize: it has the fields price, on"),
        (PRICES, [[1, None]], "c[0]", PRICES[5:-1], "a dict with the fields price, on, not list"),
        ('struct<"a b":int8>', {"a b": "x"}, 'c."a b"', "int8", "takes an int, not str"),
        ("dict<utf8,list<int8>>", {"x": [1], "y": [2, 300]}, "c['y'][1]", "int8", "127"),
        ("dict<int8,int8>", {"a": 1}, "c['a']", "int8", "takes an int, not str"),
        ("dict<string,int8>", {"a": 1, b"a": 1}, None, None, "has the key b'a' twice"),
        ("dict<utf8,int8>", ["a"], None, None, "takes a dict, or a list of pairs"),
        ("list<list<list<int8>>>", [[], [[], [1, 2, "x"]]], "c[1][1][2]", "int8", "not str"),
        ("list<string>", [b"a" * VALUE_BYTES_MAX, b""], None, None, "value is longer than"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_the_type_and_the_value(
    name: str, value: Any, place: str | None, kind: str | None, text: str
) -> None:
    with pytest.raises(SchemaViolation) as caught:
        store_of(logical_type(name))(value, "c")
    attributes = caught.value.attributes
    assert text in str(caught.value)
    assert attributes["column"] == "c"
    assert attributes.get("place") == place
    assert kind is None or attributes["type"] == kind
    assert place is None or "value" in attributes


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("list<int8>", (1,)),
        ("list<int8>", [1, 300]),
        ("list<int8>", [1.0]),
        ("list<double>", [1]),
        ("list<string>", ["a"]),
        ("list<float>", [0.1]),
        ("list<date>", [-1]),
        ("struct<a:int8,b:int8>", {"b": 1, "a": 2}),
        ("struct<a:int8,b:optional<int8>>", {"a": 1}),
        ("struct<a:int8>", {"a": 1, "b": 2}),
        ("struct<a:int8>", [1]),
        ("dict<utf8,int8>", {"a": 1}),
        ("dict<utf8,int8>", [["a", 1], ["a", 1]]),
        ("dict<utf8,int8>", [["a", 1, 2]]),
        ("dict<utf8,int8>", [["a", None]]),
    ],
)
def test_a_cell_refuses_what_is_not_the_one_stored_form(name: str, stored: Any) -> None:
    schema = TableSchema.parse([Column("k", "int64", "ascending"), Column("v", name)])
    key = schema.key_of({"k": 1})
    with pytest.raises(SchemaViolation) as caught:
        schema.stored.check_write((key, 1, (stored,)))
    assert caught.value.attributes["column"] == "v"


def test_values_share_nothing_with_what_is_stored() -> None:
    kind = logical_type("list<struct<a:any,b:dict<utf8,list<int8>>>>")
    given: list[dict[str, Any]] = [{"a": [1], "b": {"x": [1]}}]
    stored = store_of(kind)(given, "c")
    given[0]["a"].append(2)
    given[0]["b"]["x"].append(2)
    loaded = load_of(kind)(stored)
    assert loaded == [{"a": [1], "b": {"x": [1]}}]
    loaded[0]["a"].append(3)
    loaded[0]["b"]["x"].append(3)
    assert stored == [{"a": [1], "b": [["x", [1]]]}]


def test_a_field_that_an_older_value_lacks_is_null() -> None:
    wide = logical_type("list<struct<a:int8,b:optional<date>>>")
    assert load_of(wide)([{"a": 1}]) == [{"a": 1, "b": None}]
    narrow = logical_type("list<struct<a:int8>>")
    assert load_of(narrow)([{"a": 1, "b": 5}]) == [{"a": 1}]


@pytest.mark.parametrize(
    ("narrow", "wide", "is_wider"),
    [
        ("list<int8>", "list<int64>", True),
        ("list<float>", "list<double>", True),
        ("list<int8>", "list<optional<int8>>", True),
        ("list<optional<int8>>", "list<int8>", False),
        ("list<int8>", "list<uint8>", False),
        ("list<utf8>", "list<string>", False),
        ("list<int8>", "any", False),
        ("any", "list<int8>", False),
        ("list<int8>", "dict<int8,int8>", False),
        ("struct<a:int8>", "struct<a:int8,b:optional<any>>", True),
        ("struct<a:int8>", "struct<a:int8,b:any>", False),
        ("struct<a:int8>", "struct<b:optional<any>,a:int8>", False),
        ("struct<a:int8,b:int8>", "struct<a:int8>", False),
        ("struct<a:int8>", "struct<b:int8>", False),
        ("dict<int8,struct<a:int8>>", "dict<int16,struct<a:int16,b:optional<int8>>>", True),
    ],
)
def test_a_type_widens_part_by_part(narrow: str, wide: str, is_wider: bool) -> None:
    assert is_wider_type(logical_type(narrow), logical_type(wide)) is is_wider


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("list<optional<double>>", [0.5, None, float("inf")], '[0.5,null,{"$double":"Infinity"}]'),
        ("struct<a:optional<int8>,b:date>", {"a": None, "b": date(2024, 5, 31)},
         '{"a":null,"b":"2024-05-31"}'),
        ("dict<utf8,string>", {"$base64": b"\xff"}, '{"$base64":{"$base64":"/w=="}}'),
        ("dict<string,int8>", {b"\xff": 1, b"a": 2}, '{"base64:/w==":1,"a":2}'),
        ("dict<int64,decimal(5,2)>", {-5: Decimal("1.50")}, '{"-5":"1.50"}'),
        ("list<any>", [{"$base64": b"x"}], '[{"$dict":{"$base64":{"$base64":"eA=="}}}]'),
    ],
)  # fmt: skip
def test_a_value_has_this_json(name: str, value: Any, text: str) -> None:
    import msgspec

    column = Column("c", name)
    assert msgspec.json.encode(format_value(column, value)).decode() == text
    assert value_of_text(column, text) == value


@pytest.mark.parametrize(
    ("name", "given", "place", "text"),
    [
        ("list<date>", ["2024-05-31", "x"], "c[1]", "a date such as"),
        ("list<int8>", {"a": 1}, None, "takes a list, not dict"),
        ("dict<int8,int8>", {"x": 1}, None, "has keys of type int8, and 'x' is none"),
        ("dict<int8,int8>", {"300": 1}, "c[300]", "does not fit in int8"),
        ("dict<int8,int8>", [["1", 1]], None, "takes an object, not list"),
        ("struct<a:int8>", {"a": 1, "b": 2}, None, "has no field b"),
        ("list<any>", [{"$base64": "?"}], "c[0]", "not base64"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_place(
    name: str, given: Any, place: str | None, text: str
) -> None:
    with pytest.raises(SchemaViolation) as caught:
        read_value(Column("c", name), given)
    assert text in str(caught.value)
    assert caught.value.attributes["column"] == "c"
    assert caught.value.attributes.get("place") == place


def test_examples_are_values_of_their_types() -> None:
    for name in NESTED:
        store_of(logical_type(name))(an_example(name), "c")
