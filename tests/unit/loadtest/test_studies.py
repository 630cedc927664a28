"""Studies: their rounds, what they say, and the processes that live through their stories."""

import asyncio
import collections
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from dodona_loadtest import bench
from dodona_loadtest.harness import rounds
from dodona_loadtest.harness.errors import ContenderFailed, ContenderMissing
from dodona_loadtest.harness.pinger import Waits
from dodona_loadtest.harness.pinning import choose_pinning
from dodona_loadtest.harness.recorded import RecordedStudy, record
from dodona_loadtest.harness.report import Report
from dodona_loadtest.harness.rounds import Plan
from dodona_loadtest.harness.sample_rows import SampleRows
from dodona_loadtest.harness.section import summary_of
from dodona_loadtest.harness.servers import ServerProcess, private_memory_bytes
from dodona_loadtest.harness.study import (
    Bound,
    Effort,
    Figures,
    Finding,
    Measure,
    Performance,
    Performer,
    Study,
    StudyResult,
)
from dodona_loadtest.harness.study_report import number
from dodona_loadtest.harness.study_rounds import run_study
from dodona_loadtest.harness.worker_process import Spent, Stopwatch, Worker, WorkerProcess
from dodona_loadtest.peers.delta import DeltaWorker
from dodona_loadtest.rows import ROWS
from dodona_loadtest.studies import (
    CODEC_STUDIES,
    GATEWAY_STUDIES,
    IDLE_STUDIES,
    REPLICA_STUDIES,
    SPARK_STUDIES,
    STUDIES,
    TYPE_STUDIES,
    bulk,
    pauses,
    ytsaurus,
)
from suite.programs import program
from suite.waiting import wait_until

LOAD = Measure("load", "rows/s")
PAUSE = Measure("pause", "ms", is_worst_told=True)
EVERYWHERE = choose_pinning("none")


class Counter(Worker):
    """Counts in its own process."""

    def __init__(self, first: int) -> None:
        self.first = first

    async def open(self) -> None:
        self._numbers = itertools.count(self.first)

    async def close(self) -> None:
        pass

    async def next_number(self, step: int = 1) -> int:
        return next(self._numbers) * step

    async def fail(self) -> None:
        raise OSError("disk")

    async def process(self) -> int:
        return os.getpid()

    async def refuse(self) -> None:
        raise ContenderFailed("a row was acknowledged and isn't there")


class Closed(Counter):
    """Can't be opened."""

    async def open(self) -> None:
        raise ConnectionRefusedError("nobody listens")


# ---- rounds


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "REST_S", 0.0)


def _performer(name: str, perform: Callable[[int], Figures]) -> Performer:
    @contextmanager
    def start(folder: Path, effort: Effort) -> Iterator[Performance]:
        assert folder.is_dir()
        assert effort.share(1_000) == 250
        yield Performance(f"{name} 1.0", perform)

    return Performer(name, start)


def _missing(name: str) -> Performer:
    @contextmanager
    def start(folder: Path, effort: Effort) -> Iterator[Performance]:
        raise ContenderMissing("no peer on PATH")
        yield

    return Performer(name, start)


def _run(folder: Path, *performers: Performer, rounds_max: int = 3) -> StudyResult:
    folder.mkdir(exist_ok=True)
    study = Study("study", "A study", "Fair.", performers, (LOAD, PAUSE), rounds_max=rounds_max)
    plan = Plan(3, 0.01, 0.02, is_quick=False, pinning=EVERYWHERE, scale=0.25)
    return run_study(study, plan, folder, lambda text: None)


def test_rounds_are_interleaved_and_their_figures_gathered(tmp_path: Path) -> None:
    turns: list[str] = []

    def perform(name: str) -> Callable[[int], Figures]:
        def turn(number: int) -> Figures:
            turns.append(f"{name}{number}")
            return {"load": [5.0, 1.0, 2.0][number], "pause": float(number)}

        return turn

    result = _run(tmp_path, _performer("a", perform("a")), _performer("b", perform("b")))
    assert turns == ["a0", "b0", "b1", "a1", "a2", "b2"]
    assert [(it.contender, it.measure, it.value) for it in result.findings] == [
        ("a", LOAD, 2.0),
        ("b", LOAD, 2.0),
        ("a", PAUSE, 2.0),
        ("b", PAUSE, 2.0),
    ]
    assert result.versions == {"a": "a 1.0", "b": "b 1.0"}


def test_a_long_story_has_fewer_rounds(tmp_path: Path) -> None:
    result = _run(tmp_path, _performer("a", lambda number: {"load": 1.0}), rounds_max=2)
    assert [finding.values for finding in result.findings] == [(1.0, 1.0)]


def test_a_missing_or_failed_contender_is_dropped_and_the_others_continue(tmp_path: Path) -> None:
    def fail_later(number: int) -> Figures:
        if number == 1:
            raise ContenderFailed("it ended")
        return {"load": 1.0}

    result = _run(
        tmp_path,
        _performer("a", lambda number: {"load": 2.0}),
        _performer("b", fail_later),
        _missing("c"),
    )
    assert result.dropped == {"b": "it ended", "c": "no peer on PATH"}
    assert [(it.contender, len(it.values)) for it in result.findings] == [("a", 3)]
    assert result.failed == {"b"}
    assert bench.exit_status([result]) == 0
    failed = _run(tmp_path / "other", _performer("a", fail_later), _performer("b", fail_later))
    assert bench.exit_status([result, failed]) == 1


def test_operations_that_failed_are_named_but_for_those_before_the_first_round(
    tmp_path: Path,
) -> None:
    failures: collections.Counter[str] = collections.Counter()

    def lose(number: int) -> Figures:
        failures["commits"] += 1_000 * (number + 2)
        failures["lookups"] += 0
        return {"load": 1.0}

    @contextmanager
    def start(folder: Path, effort: Effort) -> Iterator[Performance]:
        yield Performance("1.0", lose, failures)

    study = Study("study", "A study", "Fair.", (Performer("a", start),), (LOAD,), warms_up=True)
    plan = Plan(2, 0.01, 0.02, is_quick=False, pinning=EVERYWHERE)
    result = run_study(study, plan, tmp_path, lambda text: None)
    (said,) = [ln for ln in Report([], [result]).markdown().splitlines() if "failed" in ln]
    assert said == "- a, commits: 5,000 operations failed"
    (recorded,) = record([], [result]).results
    assert isinstance(recorded, RecordedStudy)
    assert recorded.failures == {"a": {"commits": 5_000}}


def test_refused_pings_are_counted_under_their_phase() -> None:
    failures: collections.Counter[str] = collections.Counter()
    waits = Waits(count=3, failures=2, ms_p50=1.0, ms_p99=2.0, ms_max=3.0)
    assert pauses._waits("alone", waits, failures)["alone: longest"] == 3.0
    assert failures == {"alone": 2}


def test_a_figure_with_an_unknown_name_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="laod"):
        _run(tmp_path, _performer("a", lambda number: {"laod": 2.0}))


# ---- what the report says


def _result(*bounds: Bound) -> StudyResult:
    names = ("Dodona", "Peer")
    performers = tuple(_performer(name, lambda number: {}) for name in names)
    study = Study("study", "A study", "Fair.", performers, (LOAD, PAUSE), bounds)
    findings = [
        Finding(LOAD, "Dodona", (3_000.0, 1_000.0, 2_000.0)),
        Finding(LOAD, "Peer", (500.0,)),
        Finding(PAUSE, "Dodona", (7.0, 80.0, 9.0)),
    ]
    return StudyResult(study, findings, dropped={"Peer": "it ended"})


def test_the_report_states_dodona_in_terms_of_each_peer() -> None:
    report = Report([], [_result()]).markdown()
    assert "| load | Dodona | 2,000 | rows/s | ±50% |  |" in report
    assert "| load | Peer | 500 | rows/s | only one | 4.00× |" in report
    assert "| pause | Dodona | 80 | ms | worst of 3 |  |" in report
    assert "- Peer was not measured: it ended" in report


def test_two_rounds_have_a_mean_and_no_median() -> None:
    result = _result()
    result.findings = [Finding(LOAD, "Dodona", (1_000.0, 3_000.0))]
    report = Report([], [result]).markdown()
    assert "| load | Dodona | 2,000 | rows/s | mean of 2, ±50% |  |" in report
    said = [summary_of(count) for count in (1, 2, 3)]
    assert said == ["of one round", "means of two rounds", "medians over the rounds"]


def test_the_rows_there_rest_before_others_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the first round, in which everything is new to everybody, does not count."""
    lived: list[str] = []
    monkeypatch.setattr(bulk, "rest", lambda: lived.append("rest"))

    def load(new: SampleRows) -> Spent:
        lived.append("load")
        return Spent(1.0, 1.0)

    effort = Effort(0.001, 0.1, EVERYWHERE.client, EVERYWHERE.embedded)
    bulk._figures(
        effort,
        lambda: (),
        lambda there: lived.append("prepare"),
        load,
        lambda: lived.append("finish"),
    )
    assert lived == ["prepare", "rest", "load", "finish"] * 2
    assert bulk.STUDY.warms_up


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (Bound("load", at_least=1_500_000), "load: at least 1,500,000 rows/s: missed (2,000)"),
        (Bound("load", at_least=2_000), "load: at least 2,000 rows/s: met (2,000)"),
        (Bound("pause", at_most=50), "pause: at most 50 ms: missed (80)"),
        (Bound("load", at_least=4, times=("Peer", "load")), "at least 4× Peer: met (4)"),
        (Bound("load", at_least=5, times=("Peer", "load")), "at least 5× Peer: missed (4)"),
        (
            Bound("pause", at_most=0.05, times=("Dodona", "load")),
            'pause: at most 0.05× "load": met (0.04)',
        ),
    ],
)
def test_the_report_states_which_goals_were_met(bound: Bound, said: str) -> None:
    (line,) = [ln for ln in Report([], [_result(bound)]).markdown().splitlines() if "goal" in ln]
    assert said in line


def test_the_report_omits_a_goal_without_figures() -> None:
    bounds = (Bound("pause", at_most=1, times=("Peer", "pause")), Bound("flush", at_most=1))
    assert "goal" not in Report([], [_result(*bounds)]).markdown()


def test_numbers_have_three_digits_that_count() -> None:
    numbers = (1_234_567.8, 100.4, 85.14, 3.14159, 0.012345)
    assert [number(it) for it in numbers] == ["1,234,568", "100", "85.1", "3.14", "0.0123"]


def test_each_bound_of_a_study_names_an_existing_measure() -> None:
    for _, study in bench.ITEMS.values():
        if not isinstance(study, Study):
            continue
        names = {measure.name for measure in study.measures}
        contenders = {performer.name for performer in study.performers}
        assert len(names) == len(study.measures)
        assert study.bounds or study is ytsaurus.STUDY, "that one asks what a detour costs"
        for bound in study.bounds:
            assert bound.measure in names
            assert bound.at_least is not None or bound.at_most is not None
            if bound.times is not None:
                assert bound.times[0] in contenders
                assert bound.times[1] in names


def test_rows_are_chosen_by_group_or_by_name() -> None:
    def chosen(*words: str) -> list[str]:
        arguments = bench.command_line().parse_args(words)
        return [item.name for item in bench.chosen(arguments)]

    assert chosen("--rows", "storage") == [study.name for study in STUDIES]
    assert chosen("--rows", "commits") == [row.name for row in ROWS]
    assert chosen("--rows", "spark") == [study.name for study in SPARK_STUDIES]
    assert chosen("--rows", "codecs") == [study.name for study in CODEC_STUDIES]
    assert chosen("--rows", "gateway") == [study.name for study in GATEWAY_STUDIES]
    assert chosen("--rows", "idle") == [study.name for study in IDLE_STUDIES]
    assert chosen("--rows", "replicas") == [study.name for study in REPLICA_STUDIES]
    assert chosen("--rows", "types") == [study.name for study in TYPE_STUDIES]
    groups = ("commits", "storage", "replicas", "types", "spark", "codecs", "gateway", "idle")
    assert chosen() == [name for group in groups for name in chosen("--rows", group)]
    assert chosen("--only", "restart", "--only", "commits") == ["commits", "restart"]


# ---- processes


@pytest.mark.integration
def test_a_worker_runs_calls_in_its_own_process_until_the_worker_is_closed() -> None:
    with WorkerProcess(Counter(first=5), EVERYWHERE.client) as worker:
        assert worker.call(Counter.next_number) == 5
        with pytest.raises(ContenderFailed, match="OSError: disk"):
            worker.call(Counter.fail)
        with pytest.raises(ContenderFailed, match="was acknowledged"):
            worker.call(Counter.refuse)
        assert worker.call(Counter.next_number, step=100) == 600
        pid = worker.call(Counter.process)
        assert pid != os.getpid()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.integration
def test_a_worker_that_can_not_be_opened_is_reported() -> None:
    with (
        pytest.raises(ContenderFailed, match="nobody listens"),
        WorkerProcess(Closed(0), EVERYWHERE.client),
    ):
        pass


@pytest.mark.integration
def test_a_server_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "import subprocess, sys\np = subprocess.Popen(['sleep', '60'])\nprint(p.pid, flush=1)"
    command = [sys.executable, "-c", f"{script}\np.wait()"]
    log = tmp_path / "log"
    with ServerProcess(command, log, lambda: bool(log.read_bytes().strip())) as server:
        child = int(log.read_text())
        server.kill()
        assert not Path(f"/proc/{server.pid}").exists()
        wait_until(lambda: not _is_running(child))  # whoever inherits the child buries it


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_private_memory_grows_by_the_memory_that_a_process_allocates() -> None:
    """Of a process that has done nothing else: what others here free and touch would be in it."""
    code = "import os; ballast = os.urandom(int(input()) << 20); print(len(ballast)); input()"

    def measure(ballast_mib: int) -> int:
        with program([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            print(ballast_mib, file=process.stdin, flush=True)
            assert process.stdout.readline() == f"{ballast_mib << 20}\n"
            found = private_memory_bytes(process.pid)
            print(file=process.stdin, flush=True)
            return found

    assert (30 << 20) < measure(32) - measure(0) < (34 << 20)


def test_a_stopwatch_reads_both_clocks() -> None:
    watch = Stopwatch()
    while (spent := watch.read()).cpu_s < 0.01:
        pass
    assert spent.duration_s >= 0.01 * 0.99


# ---- Delta, which needs no server


def test_delta_merges_appends_and_reads(tmp_path: Path) -> None:
    async def live() -> list[int]:
        worker = DeltaWorker(tmp_path)
        await worker.open()
        await worker.create("table", SampleRows(100, step=2))
        await worker.merge("table", SampleRows(100, first=100, step=2))  # half of them are new
        counts = [await worker.count("table")]
        assert await worker.scan("table", SampleRows(150, step=2), 50, 0.0) > 0
        await worker.append("table", SampleRows(10, first=1_000))
        counts.append(await worker.count("table"))
        await worker.remove("table")
        return counts

    assert asyncio.run(live()) == [150, 160]
    assert list(tmp_path.iterdir()) == []
