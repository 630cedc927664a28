"""What a caller gave, in an error: text that is always there, and never long.

Integers of more than 4,300 digits, which Python refuses to write, deep and long values, and objects
that can't be shown are given to every argument of every call: each is taken, or refused by a typed
error whose text is short.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import dodona
from dodona.errors import DodonaError, InvalidRequest, SchemaViolation
from dodona_wire.shown import DEPTH_MAX, LENGTH_MAX, shown
from unit.client.interrupting import Alarm, interrupted, points_of

TABLE: Final = "//t"
HUGE: Final = 10**5000
ERROR_LENGTH_MAX: Final = 6_000


class Unshown:
    """No text can be made of it."""

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")

    __str__ = __repr__


class Unshownlist(list[Any]):
    """Its name is not that of a built-in type, its kind is."""

    __repr__ = Unshown.__repr__


DEEP: list[Any] = []
for _ in range(10_000):
    DEEP = [DEEP]
CYCLE: list[Any] = []
CYCLE.append(CYCLE)
HOSTILE: Final[dict[str, Any]] = {
    "huge": HUGE,
    "negative": -HUGE,
    "in a list": [HUGE],
    "in a dict": {"k": HUGE, "v": HUGE},
    "in a row": [{"k": HUGE, "v": HUGE}],
    "as a name": [{HUGE: 1}],
    "unshown": Unshown(),
    "unshown names": [{Unshown(): Unshown()}],
    "unshown list": Unshownlist([Unshown()]),
    "long text": "x" * 1_000_000,
    "long": [b"x" * 1_000_000] * 1_000,
    "deep": DEEP,
    "cycle": CYCLE,
}

GOOD: Final[dict[str, Any]] = {
    "path": TABLE,
    "prefix": TABLE,
    "paths": [TABLE],
    "rows": [{"k": 1, "v": 1}],
    "keys": [{"k": 1}],
    "schema": [{"name": "k", "type": "int64", "sort_order": "ascending"}],
    "sql": "select 1",
    "source": "//a",
    "destination": "//b",
    "transaction": 1,
    "since": 1,
    "value": 1,
    "data": [],
    "function": len,
}
"""What other arguments are given, where they need something."""

LEFT_OUT: Final = {"close", "hold_snapshot"}
"""Ends the client; its snapshot is let go of in tests of its own."""


def test_a_text_is_always_there_and_never_long() -> None:
    for value in (*HOSTILE.values(), {HUGE}, (HUGE,), frozenset([HUGE]), Unshown):
        assert 0 < len(shown(value)) <= LENGTH_MAX
        assert len(str(SchemaViolation("no", value=value))) <= ERROR_LENGTH_MAX


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(1 << 63), 1 << 64, 1.5, float("nan"), "it's", b"\xff", [1, "a"], (1,), {}],
)
def test_a_short_value_is_shown_as_its_repr(value: Any) -> None:
    for held in (value, [value], {"b": value, "a": value}):
        assert shown(held) == repr(held)


def test_the_text_of_a_value_marks_omitted_parts() -> None:
    assert shown(HUGE) == f"an int of {HUGE.bit_length()} bits"
    assert shown([HUGE]) == f"[an int of {HUGE.bit_length()} bits]"
    assert shown(Unshown()) == "one Unshown"
    assert shown("x" * 1000) == f"'{'x' * 100}'…"
    assert shown(b"x" * 1000) == f"b'{'x' * 100}'…"
    assert shown(DEEP) == "[" * DEPTH_MAX + "[...]" + "]" * DEPTH_MAX
    assert shown(dict.fromkeys(range(100))).endswith("19: None, ...}")


def test_an_exception_of_a_signal_handler_in_shown_reaches_the_caller() -> None:
    """Of each of its lines, and of those it calls: a signal handler may raise anywhere."""
    for value in ([1, {"a": b"x"}], Unshown(), 5):
        for point in points_of(lambda value=value: shown(value), set()):  # type: ignore[misc]
            assert interrupted(lambda value=value: shown(value), point, Alarm("now"))  # type: ignore[misc]
    assert shown(Unshown()) == "one Unshown"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    folder: Path = tmp_path_factory.mktemp("shown")
    with dodona.open(str(folder)) as db:
        columns = [dodona.Column("k", "int64", "ascending"), dodona.Column("v", "any")]
        db.create_table(TABLE, columns, mount=True)
        yield db


def calls_of(target: Any) -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Each public method with each of its arguments."""
    for name in dir(type(target)):
        method = getattr(type(target), name)
        if not name.startswith("_") and inspect.isfunction(method) and name not in LEFT_OUT:
            for argument in [*inspect.signature(method).parameters][1:]:
                yield name, getattr(target, name), argument


def refusals(target: Any) -> Iterator[tuple[str, DodonaError]]:
    for name, method, argument in calls_of(target):
        parameters = inspect.signature(method).parameters.values()
        needed = {it.name: GOOD.get(it.name, 1) for it in parameters if it.default is it.empty}
        for what, hostile in HOSTILE.items():
            try:
                method(**{**needed, argument: hostile})
            except DodonaError as error:
                yield f"{name}({argument}={what})", error


def test_each_refused_call_raises_a_typed_error_with_a_short_message(db: dodona.Client) -> None:
    count = 0
    for target in (db, db.begin(), db.begin_master(), db.loads):
        for call, error in refusals(target):
            count += 1
            assert len(str(error)) <= ERROR_LENGTH_MAX, call
            assert isinstance(error, DodonaError), call
    assert count > 500


@pytest.mark.parametrize("column_type", ["int64", "uint64", "double", "boolean", "string", "any"])
def test_values_that_do_not_fit_are_shown_shortly(column_type: str) -> None:
    schema = dodona.TableSchema.parse(
        [
            {"name": "k", "type": "int64", "sort_order": "ascending"},
            {"name": "v", "type": column_type},
        ]
    )
    for value in (HUGE, -HUGE, [HUGE], {"a": HUGE}, {HUGE: 1}, Unshown(), DEEP, CYCLE):
        for row in ({"k": 1, "v": value}, {"k": value, "v": None}):
            with pytest.raises(SchemaViolation) as refusal:
                schema.write_of(row)
            assert len(str(refusal.value)) <= ERROR_LENGTH_MAX


@pytest.mark.parametrize(
    "field", ["name", "type", "sort_order", "required", "lock", "aggregate", "more"]
)
def test_a_schema_that_is_none_is_shown_shortly(field: str) -> None:
    for value in (HUGE, [HUGE], Unshown(), DEEP):
        key = {"name": "k", "type": "int64", "sort_order": "ascending"}
        with pytest.raises(InvalidRequest) as refusal:
            dodona.TableSchema.parse([key, {"name": "v", "type": "int64", field: value}])
        assert len(str(refusal.value)) <= ERROR_LENGTH_MAX
