"""The tree by commands: names, attributes, moving about."""

import pytest

from unit.cli.commands import TABLE, Commands


def test_names_are_lines(bank: Commands) -> None:
    bank.said("mkdir", "//bank/old")
    assert bank.said("list") == "bank\n"
    assert bank.said("list", "//bank") == "accounts\nold\n"
    assert bank.value("list", "//bank") == ["accounts", "old"]
    assert bank.said("list", "//bank", "--format", "csv") == '"name"\n"accounts"\n"old"\n'
    assert "type" in bank.said("list", f"{TABLE}/@").splitlines()


def test_list_long_shows_type_state_and_tablet_count_of_each_entry(bank: Commands) -> None:
    bank.said("mkdir", "//bank/old")
    assert bank.value("list", "//bank", "--long") == [
        {"name": "accounts", "type": "table", "state": "mounted", "tablets": 1},
        {"name": "old", "type": "directory", "state": None, "tablets": None},
    ]
    heading, *lines = bank.said("list", "-l", "//bank").splitlines()
    assert heading.split() == ["name", "type", "state", "tablets"]
    assert [line.split()[0] for line in lines] == ["accounts", "old"]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("ann", "ann"),
        ("a.b/c-d", "a.b/c-d"),
        ('"12"', "12"),
        ("12", 12),
        ("-1.5", -1.5),
        ("true", True),
        ("null", None),
        ('{"a": [1, null]}', {"a": [1, None]}),
        ("18446744073709551615", (1 << 64) - 1),
        ("Grün", "Grün"),
    ],
)
def test_set_accepts_json_or_one_word_as_the_value_of_an_attribute(
    bank: Commands, word: str, value: object
) -> None:
    bank.said("set", "//bank/@x", "--", word)
    assert bank.value("get", "//bank/@x") == value
    assert bank.value("get", "//bank/@")["x"] == value


@pytest.mark.parametrize("word", ["two words", "{bad", "[1,", "1.2.3", "'x'", ""])
def test_set_refuses_a_value_that_is_neither_json_nor_one_word(bank: Commands, word: str) -> None:
    said = bank.refused("set", "//bank/@x", word)
    assert "a value, unless it is one word, is not JSON" in said


def test_attributes_are_given_once(dodona: Commands) -> None:
    for words in (["x"], ["=1"], ["x=1", "x=2"]):
        options = [option for word in words for option in ("--attribute", word)]
        assert "attribute" in dodona.refused("mkdir", "//d", *options)
    dodona.said("mkdir", "//d/e", "--recursive", "--attribute", "x=1", "--attribute", "y=z")
    assert dodona.value("get", "//d/e/@x") == 1
    dodona.said("mkdir", "//d/e", "--ignore-existing")
    assert "//d/e" in dodona.refused("mkdir", "//d/e")


def test_values_are_shown_plainly(bank: Commands) -> None:
    bank.said("set", "//bank/@owner", "ann")
    assert bank.said("get", "//bank/@owner") == "ann\n"
    bank.said("set", "//bank/@owner", '"\\u001b[31mred"')
    assert bank.said("get", "//bank/@owner") == '"\\u001b[31mred"\n', "a terminal obeys nobody"
    assert bank.said("get", "//bank/@owner", "--format", "json") == '"\\u001b[31mred"\n'
    assert '"accounts": null' in bank.said("get", "//bank")
    lines = bank.said("get", "//bank/@", "--format", "csv").splitlines()
    assert lines[0] == '"name","value"'
    assert '"count","1"' in lines
    assert bank.said("get", "//bank/@count", "--format", "csv") == '"value"\n"1"\n'


def test_whether_something_is_there_is_an_exit_code(bank: Commands) -> None:
    assert bank.said("exists", TABLE) == "true\n"
    assert bank.run("exists", "//none", code=1).output == "false\n"


def test_nodes_move_are_copied_and_go(bank: Commands) -> None:
    bank.said("insert", TABLE, "-", "--input-format", "json", stdin='{"id": 1, "name": "x"}')
    assert "unmount" in bank.refused("move", TABLE, "//b")
    bank.said("unmount", TABLE)
    bank.said("move", TABLE, "//new/place", "--recursive")
    bank.said("copy", "//new/place", "//bank/copy")
    for path in ("//new/place", "//bank/copy"):
        bank.said("mount", path)
        assert [row["id"] for row in bank.rows(path)] == [1]
    assert "not empty" in bank.refused("remove", "//new")
    bank.said("remove", "//new", "--recursive")
    assert "//new" in bank.refused("remove", "//new")
    bank.said("remove", "//new", "--force")
    bank.said("remove", "//bank/copy")
    assert bank.said("list", "//bank") == ""


def test_an_attribute_without_meaning_is_warned_of_and_a_misspelled_one_refused(
    bank: Commands,
) -> None:
    result = bank.run("set", f"{TABLE}/@optimize_for", "scan")
    assert "dodona: warning: attribute 'optimize_for'" in result.stderr
    assert "Did you mean" in bank.refused("set", f"{TABLE}/@min_data_tll", "1")
