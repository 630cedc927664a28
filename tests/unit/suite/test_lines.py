"""Errors at instructions that have no line."""

from collections.abc import Callable

import pytest

from suite.lines import give_lines


def without_lines(function: Callable[[], None]) -> Callable[[], None]:
    code = function.__code__
    function.__code__ = code.replace(co_linetable=b"")
    return function


@without_lines
def broken() -> None:
    raise ValueError


@without_lines
def outer() -> None:
    try:
        broken()
    except ValueError as error:
        raise KeyError from error


def test_each_entry_gets_a_line() -> None:
    with pytest.raises(KeyError) as found:
        outer()
    error = found.value
    give_lines(error)
    cause = error.__cause__
    assert cause is not None
    for it, names in ((error, ["test_each_entry_gets_a_line", "outer"]), (cause, ["broken"])):
        entries = list(pytest.ExceptionInfo.from_exception(it).traceback)
        assert [entry.name for entry in entries][-len(names) :] == names
        assert all(entry.lineno >= 0 for entry in entries)


def test_pytest_needs_it() -> None:
    """Once pytest can do without, the module can go."""
    with pytest.raises(KeyError) as found:
        outer()
    with pytest.raises(TypeError):
        assert [entry.lineno for entry in found.traceback]
