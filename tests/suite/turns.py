"""Turns: workers read the same files, each beginning at another place.

Owns: in which order a worker reads files, and that its tests have the order of all workers
nevertheless. After a checkout nothing is compiled yet, which takes three times as long as all else
that a worker does before its first test. What one has compiled, the others find. Must not import:
any product.
"""

from collections.abc import Generator

import pytest

FIRST = "gw"
"""What the names of workers begin with: a number follows."""


class Turns:
    """A plugin of the worker with this number, of so many."""

    def __init__(self, number: int, count: int) -> None:
        self._number = number
        self._count = count

    @classmethod
    def of(cls, workerinput: dict[str, object]) -> "Turns":
        """`workerinput` is what xdist tells its worker."""
        number = str(workerinput["workerid"]).removeprefix(FIRST)
        return cls(int(number), int(str(workerinput["workercount"])))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Directory) and report.result:
            begin = len(report.result) * self._number // self._count
            report.result = report.result[begin:] + report.result[:begin]
        return report

    @pytest.hookimpl(tryfirst=True)  # before anything looks at the order
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Those of a file keep their order."""
        items.sort(key=lambda it: it.nodeid.partition("::")[0])
