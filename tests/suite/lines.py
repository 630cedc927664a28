"""Tracebacks of which an entry has no line, before pytest reads them.

Owns: the lines of such entries. Python has instructions without a line, and a signal, as that of a
test that took too long, may interrupt one of them. pytest 9.2 then fails in itself, and the run
ends. Must not import: any product.
"""

from collections.abc import Generator, Iterator
from types import TracebackType

import pytest


class Lines:
    """A plugin of every process that runs tests."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.excinfo is not None:
            error = call.excinfo.value
            give_lines(error)
            call.excinfo = pytest.ExceptionInfo.from_exception(error)
        return (yield)


def give_lines(error: BaseException) -> None:
    """Let each entry of the error, and of all that it came from, have a line: that where its
    function begins, if it has no other."""
    for it in _all_of(error):
        it.__traceback__ = _with_lines(it.__traceback__)


def _all_of(error: BaseException) -> Iterator[BaseException]:
    found: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        it = left.pop()
        if it is not None and id(it) not in found:
            found[id(it)] = it
            left += [it.__cause__, it.__context__]
    return iter(found.values())


def _with_lines(first: TracebackType | None) -> TracebackType | None:
    entries = []
    while first is not None:
        entries.append(first)
        first = first.tb_next
    for entry in reversed(entries):
        line: int | None = entry.tb_lineno
        if line is None:
            line = entry.tb_frame.f_code.co_firstlineno
        first = TracebackType(first, entry.tb_frame, entry.tb_lasti, line)
    return first
