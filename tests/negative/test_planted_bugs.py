"""Every known bug is caught in as few seeds as it states, and no item is left out.

The hunts of all selected tests run side by side in processes of their own, unless xdist does that.
"""

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from dodona._core.protocol.context import Acknowledgement
from negative import table
from negative.bug import ITEMS, PlantedBug
from negative.hunt import Catch, hunt
from negative.planted import BUGS, EXCUSES
from negative.planted.harmless import HARMLESS
from negative.workers import hunt_at, start_workers

pytestmark = pytest.mark.pooled  # the hunts have a process for each core

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "planted-bugs.md"

SHOWN = (
    "a proxy lets callers join a request that is under way",
    "a read does not wait for a prepared row",
    "no cell recovers a prepared transaction after its client has crashed",
)
"""One of the oracle, one of reads, and one of recovery. The first seeds catch each of them."""

Job = tuple[int, Acknowledgement | None]
JOBS: list[Job] = [(at, None) for at, _ in enumerate(BUGS)]
JOBS += [(at, "prepared") for at, bug in enumerate(BUGS) if bug.is_of_one_round]


def name_of(job: Job) -> str:
    bug = BUGS[job[0]]
    return f"{bug.item or 'further'}: {bug.title}" + (", prepared" if job[1] else "")


def job_of(job: Job) -> object:
    """In `make test`, too, if it is one of `SHOWN`."""
    is_shown = job[1] is None and BUGS[job[0]].title in SHOWN
    marks = [pytest.mark.part("a planted bug is caught")] if is_shown else []
    return pytest.param(job, marks=marks)


class Hunts:
    """Those of the selected tests, begun at once; with xdist each when its turn comes."""

    def __init__(self, workers: Executor, jobs: list[Job]) -> None:
        self._workers = workers
        self._begun = {job: workers.submit(hunt_at, *job) for job in jobs}

    def wait_for(self, job: Job) -> Catch | None:
        begun = self._begun.get(job)
        return (begun or self._workers.submit(hunt_at, *job)).result()


@pytest.fixture(scope="module")
def hunts(request: pytest.FixtureRequest) -> Iterator[Hunts]:
    """What fails with a planted bug leaves files and sockets open: never in this process."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        with start_workers(1) as workers:
            yield Hunts(workers, [])
        return
    parameters = [getattr(item, "callspec", None) for item in request.session.items]
    jobs = [it.params["job"] for it in parameters if it is not None and "job" in it.params]
    with start_workers() as workers:
        yield Hunts(workers, [job for job in jobs if job in JOBS])


@pytest.mark.timeout(3600)  # of which most is waiting for a turn
@pytest.mark.parametrize("job", [job_of(it) for it in JOBS], ids=name_of)
def test_a_planted_bug_is_caught(job: Job, hunts: Hunts) -> None:
    assert hunts.wait_for(job) is not None, "no seed, or test, shows anything"


@pytest.mark.parametrize("bug", HARMLESS, ids=lambda bug: bug.title)
def test_a_harmless_bug_breaks_nothing_with_acknowledgement_decided(bug: PlantedBug) -> None:
    assert hunt(bug, "decided") is None


def test_every_item_of_the_catalogue_is_planted_or_excused() -> None:
    planted = {bug.item for bug in BUGS if bug.item is not None}
    excused = {excuse.item for excuse in EXCUSES}
    assert planted | excused == set(ITEMS)
    assert len(planted) >= 40
    assert all(excuse.reason for excuse in EXCUSES)


def test_bugs_shown_by_each_run_are_planted() -> None:
    assert set(SHOWN) <= {bug.title for bug in BUGS}


def test_the_page_lists_every_planted_bug_and_every_excuse() -> None:
    text = PAGE.read_text("utf-8")
    name = table.SECTION
    listed = text.partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0]
    missing = [bug.title for bug in BUGS if f"| {bug.title} |" not in listed]
    assert not missing, "python -m negative --markdown docs/explanation/planted-bugs.md"
    assert all(f"- {it.item}, {it.title}: {it.reason}." in listed for it in EXCUSES)
    assert "not caught" not in listed
