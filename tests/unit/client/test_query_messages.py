"""The place in a message of DuckDB: which parameter it points at, and in which line."""

import pytest

from dodona._core.sql.messages import moved_up, parameter_at, without_trace

LONG = "x" * 200


@pytest.mark.parametrize(
    ("message", "moved"),
    [
        ("Error: no place", "Error: no place"),
        ("Error\n\nLINE 2: a = $x\n            ^^", "Error\n\nLINE 1: a = $x\n            ^^"),
        ("Error\n\nLINE 10: a = $x\n             ^", "Error\n\nLINE 9: a = $x\n            ^"),
        ("Error\n\nLINE 1: explain\n        ^", "Error"),
        (
            "'\nLINE 7: a\n        ^\n' in\n\nLINE 3: b\n        ^",
            "'\nLINE 7: a\n        ^\n' in\n\nLINE 2: b\n        ^",
        ),
    ],
)
def test_a_place_moves_with_its_mark(message: str, moved: str) -> None:
    assert moved_up(message, 1) == moved
    assert moved_up(message, 0) == message


@pytest.mark.parametrize(
    ("line", "column", "text", "name"),
    [
        ("LINE 1: a = $Day", 4, "a = $Day", "day"),
        ("LINE 1: a = $Day", 0, "a = $Day", None),
        ("LINE 2: é = ? or ?", 9, "select\né = ? or ?", "2"),
        ("LINE 9: $Day = a", 0, "a = $Day", "day"),
        ("LINE 1: ...xx = $Day and", 8, f"{LONG} = $Day and", "day"),
        ("LINE 1: ...xx = ? and", 8, f"{LONG} = ? and", None),
    ],
)
def test_a_parameter_is_found_at_the_mark(
    line: str, column: int, text: str, name: str | None
) -> None:
    message = f"Error\n\n{line}\n{' ' * (len('LINE 1: ') + column)}^^"
    names = (
        {4: "day"} if "$" in text else {len(text.encode()) - 6: "1", len(text.encode()) - 1: "2"}
    )
    assert parameter_at(message, text, names) == name


def test_a_message_has_no_stack_of_the_machine() -> None:
    message = "INTERNAL Error: a value\n\nStack Trace:\n\n/home/me/lib.so(_Z1a) [0x1]\n"
    assert without_trace(message).startswith(
        "INTERNAL Error: a value\n\nThis is a defect in DuckDB"
    )
    assert "/home" not in without_trace(message)
    assert without_trace("Error: no stack") == "Error: no stack"


def test_a_message_without_a_place_points_at_nothing() -> None:
    assert parameter_at("Error: $day", "select $day", {7: "day"}) is None
    assert parameter_at("Error\n\nLINE 1: a\n    ^", "a", {0: "day"}) is None


def test_a_mark_under_the_first_letter_points_at_the_parameter_there() -> None:
    assert parameter_at("Error\n\nLINE 1: ? = a\n        ^", "? = a", {0: "1"}) == "1"
    assert parameter_at("Error\n\nLINE 1: a\n       ^", "a", {0: "1"}) is None
