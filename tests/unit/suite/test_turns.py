"""Each worker reads the files from another place on, and all have the same order of tests."""

from types import SimpleNamespace
from typing import Any

import pytest

from suite.turns import Turns


def read_by(turns: Turns, folder: pytest.Collector, found: list[Any]) -> list[Any]:
    """What the worker is given of this folder, whose entries are found in this order."""
    reading = turns.pytest_make_collect_report(folder)
    next(reading)
    with pytest.raises(StopIteration) as stopped:
        reading.send(pytest.CollectReport("tests", "passed", None, found))
    report: pytest.CollectReport = stopped.value.value
    return report.result


def test_each_worker_begins_at_another_place(request: pytest.FixtureRequest) -> None:
    folder = request.node.getparent(pytest.Directory)
    workers = [Turns.of({"workerid": f"gw{it}", "workercount": 3}) for it in range(3)]
    found = [read_by(it, folder, [*"abcdef"]) for it in workers]
    assert ["".join(it) for it in found] == ["abcdef", "cdefab", "efabcd"]
    assert read_by(workers[1], folder, []) == []


def test_the_tests_of_a_file_keep_their_order(request: pytest.FixtureRequest) -> None:
    file = request.node.getparent(pytest.Module)
    assert read_by(Turns(1, 2), file, [*"abcd"]) == [*"abcd"]
    items: list[Any] = [SimpleNamespace(nodeid=it) for it in ("b.py::z", "b.py::a", "a.py::b")]
    Turns(1, 2).pytest_collection_modifyitems(items)
    assert [it.nodeid for it in items] == ["a.py::b", "b.py::z", "b.py::a"]
