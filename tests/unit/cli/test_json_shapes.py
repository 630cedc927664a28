"""JSON files as people have them: objects over several lines are read, and faults are placed."""

import json

import pytest

from unit.cli.commands import TABLE, Commands, account

JSON = ("--input-format", "json")
ROWS = [account(1, name="a\n}{"), account(2, name="é"), account(3)]


@pytest.mark.parametrize("indent", [1, 4, None])
@pytest.mark.parametrize("between", ["\n", "\n\n", " \r\n"])
def test_pretty_printed_objects_are_read(bank: Commands, indent: int | None, between: str) -> None:
    text = between.join(json.dumps(row, indent=indent, ensure_ascii=False) for row in ROWS)
    for end in ("", "\n"):
        bank.said("insert", TABLE, "-", *JSON, stdin=text + end)
        assert bank.rows() == ROWS


def test_json_lines_may_precede_pretty_printed_objects(bank: Commands) -> None:
    text = json.dumps(ROWS[0]) + "\n" + json.dumps(ROWS[1], indent=2) + json.dumps(ROWS[2])
    bank.said("insert", TABLE, "-", *JSON, stdin=text)
    assert bank.rows() == ROWS


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ('{\n "id": 1,\n "balance": 2\n}\n{\n "id": 2\n', "not JSON", 5),
        ('{\n "id": 1,\n "balance": 2\n}\n{\n "id": 2,\n "balance": "x"\n}', "takes an int", 5),
        ('{"id":1,"balance":2}\n{"id":2,\n"name":"x\n"}\n', "not JSON", 2),
        ('{\n"id":1,"name":"\udcff"}', "not UTF-8", 1),
    ],
)
def test_faults_have_their_line(bank: Commands, text: str, words: str, line: int) -> None:
    raw = text.encode("utf-8", "surrogateescape")
    said = bank.refused("insert", TABLE, "-", *JSON, stdin=raw)
    assert words in said
    assert f"line={line}" in said


@pytest.mark.parametrize("form", ["csv", "json"])
def test_bad_base64_names_row_and_column(dodona: Commands, form: str) -> None:
    dodona.said("create", TABLE, "--schema", "id:int64:key,raw:string,x:any")
    texts = {
        "csv": 'id,raw\n1,"base64:/w=="\n2,base64:%\n',
        "json": '{"id":1,"raw":{"$base64":"/w=="}}\n{"id":2,"raw":{"$base64":"%"}}\n',
    }
    said = dodona.refused("insert", TABLE, "-", "--input-format", form, stdin=texts[form])
    assert "'%' is not base64" in said
    assert "column='raw', row=2" in said


ONCE = '{"id":1,"name":"a:b"}'
TWICE = '{"id":2,"name":"first","name":"second"}'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{ONCE}\n\n{TWICE}\n", 3),
        (f"[{ONCE},\n{TWICE}]", 2),
        (f"{ONCE}\n{TWICE.replace(',', f',{chr(10)}')}", 2),
    ],
)
@pytest.mark.parametrize("place", ["stdin", "file"])
def test_a_column_that_is_named_twice_is_refused(
    bank: Commands, text: str, line: int, place: str
) -> None:
    """JSON's readers keep the last, without a word (couchdb-python 32, tinydb 290)."""
    file = bank.folder.parent / "rows.json"
    file.write_text(text)
    source = "-" if place == "stdin" else str(file)
    for words in (["insert"], ["insert", "--update"]):
        said = bank.refused(*words, TABLE, source, *JSON, stdin=text)
        assert "the column 'name' is named twice in one row" in said
        assert f"line={line}" in said
        assert "row=2" in said
    assert bank.rows() == []


def test_a_key_that_is_named_twice_is_refused(bank: Commands) -> None:
    twice = '{"id":1,"id":2}'
    said = bank.refused("delete", TABLE, "-", *JSON, stdin=twice)
    assert "the column 'id' is named twice in one row" in said
    for words in (["lookup", TABLE, twice], ["select", TABLE, "--lower", twice]):
        assert "'id' is named twice in one object" in bank.refused(*words)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_value_that_names_something_twice_is_refused(dodona: Commands, form: str) -> None:
    dodona.said("create", TABLE, "--schema", "id:int64:key,x:any")
    texts = {
        "csv": 'id,x\n1,"{""a"":1}"\n2,"{""a"":1,""a"":2}"\n',
        "json": '{"id":1,"x":{"a":1}}\n{"id":2,"x":{"a":1,"a":2}}\n',
    }
    said = dodona.refused("insert", TABLE, "-", "--input-format", form, stdin=texts[form])
    assert "'a' is named twice in one object" in said
    assert "column='x', row=2" in said
