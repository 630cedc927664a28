"""The benchmark's own arithmetic and its processes: a wrong harness would flatter quietly."""

import asyncio
import itertools
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from unittest.mock import patch

import pytest

from dodona_loadtest import bench
from dodona_loadtest.harness import measure
from dodona_loadtest.harness.client_process import ClientProcess, Order
from dodona_loadtest.harness.ending import bound
from dodona_loadtest.harness.errors import ContenderFailed, ContenderMissing, client_library
from dodona_loadtest.harness.load import AsyncLoad, AsyncOperation, ThreadLoad, ThreadOperation
from dodona_loadtest.harness.machine import machine_facts
from dodona_loadtest.harness.measure import Sample, measure_tasks, measure_threads, percentile
from dodona_loadtest.harness.payload import KEYS_COUNT, VALUE_BYTES, RowSource
from dodona_loadtest.harness.pinning import choose_pinning
from dodona_loadtest.harness.recorded import read_recorded
from dodona_loadtest.harness.report import Report
from dodona_loadtest.harness.rounds import Plan, run_row
from dodona_loadtest.harness.row import Contender, Goal, Line, Observation, Row, RowResult, Running
from dodona_loadtest.harness.servers import ServerProcess, cpu_seconds, families
from suite.programs import program
from suite.waiting import WAIT_S_MAX, wait_until


class Sleeps(AsyncLoad):
    """Each operation takes a known time; every fourth fails in a way that must be expected."""

    latency_every = 2

    def __init__(self, sleep_s: float, *, is_failing: bool = False, is_lying: bool = False) -> None:
        self.sleep_s = sleep_s
        self.is_failing = is_failing
        self.is_lying = is_lying
        self.calls = 0

    def tolerated(self) -> tuple[type[Exception], ...]:
        return (TimeoutError,)

    async def open(self, callers_max: int) -> None:
        assert callers_max > 0

    def operation(self, caller: int) -> AsyncOperation:
        async def sleep() -> None:
            await asyncio.sleep(self.sleep_s)
            self.calls += 1
            if self.is_failing and self.calls % 4 == 0:
                raise TimeoutError

        return sleep

    async def check(self) -> None:
        if self.is_lying:
            raise ContenderFailed("a row was acknowledged and isn't there")

    async def close(self) -> None:
        pass


class Spins(ThreadLoad):
    """Each operation takes a known time of a thread."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def open(self, callers_max: int) -> None:
        pass

    def operation(self, caller: int) -> ThreadOperation:
        def sleep() -> None:
            time.sleep(0.002)
            if self.error is not None:
                raise self.error

        return sleep

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_percentile_is_a_value_that_was_measured() -> None:
    ordered = list(range(1, 101))
    assert percentile(ordered, 0.50) == 50
    assert percentile(ordered, 0.99) == 99
    assert percentile(ordered, 1.0) == 100
    assert percentile([7], 0.01) == 7
    assert math.isnan(percentile([], 0.5))


def test_callers_wait_side_by_side_and_their_operations_add_up() -> None:
    load = Sleeps(0.005)
    sample = asyncio.run(measure_tasks(load, callers=10, duration_s=0.2))
    assert sample.operations == load.calls
    assert sample.failures == 0
    assert sample.latency_us_p50 >= 5_000
    assert sample.latency_us_p99 >= sample.latency_us_p50
    assert sample.rate == pytest.approx(sample.operations / sample.duration_s)
    assert sample.duration_s >= 0.2


def test_an_expected_failure_is_not_counted_as_an_acknowledged_operation() -> None:
    load = Sleeps(0.001, is_failing=True)
    sample = asyncio.run(measure_tasks(load, callers=2, duration_s=0.1))
    assert sample.failures == load.calls // 4 > 0
    assert sample.operations == load.calls - sample.failures


class SlowToBegin(Sleeps):
    """The first operation of each caller takes long: all of them come at once."""

    latency_every = 16

    def operation(self, caller: int) -> AsyncOperation:
        durations_s = itertools.chain([0.3], itertools.repeat(0.0))

        async def sleep() -> None:
            await asyncio.sleep(next(durations_s))

        return sleep


def test_the_first_calls_are_sampled_at_the_same_rate_as_later_calls() -> None:
    load = SlowToBegin(0.0)

    async def run_all() -> list[int]:
        run = measure._Run(())
        with patch.object(measure, "_Run", return_value=run):
            await measure_tasks(load, callers=64, duration_s=2)
        return run.latencies_ns

    latencies_ns = asyncio.run(run_all())
    slow = [latency_ns for latency_ns in latencies_ns if latency_ns >= 300_000_000]
    assert len(slow) == 64 // load.latency_every
    assert len(latencies_ns) > 100 * len(slow)


def test_threads_are_measured_alike() -> None:
    sample = measure_threads(Spins(), callers=4, duration_s=0.1)
    assert sample.operations > 4
    assert sample.latency_us_p50 >= 2_000


def test_an_unexpected_error_in_a_thread_reaches_the_caller() -> None:
    with pytest.raises(OSError, match="disk"):
        measure_threads(Spins(OSError("disk")), callers=2, duration_s=5)


def test_keys_and_values_are_the_same_in_every_run() -> None:
    one, other = RowSource(), RowSource()
    keys = [one.next_key() for _ in range(1000)]
    assert keys == [other.next_key() for _ in range(1000)]
    assert 0 <= min(keys) < max(keys) < KEYS_COUNT
    assert len(one.next_value()) == VALUE_BYTES


def test_split_pinning_keeps_clients_and_servers_apart() -> None:
    pinning = choose_pinning("split")
    everything = os.sched_getaffinity(0)
    assert pinning.embedded == everything
    if len(everything) > 1:
        assert not pinning.client & pinning.servers
    assert choose_pinning("none").client == everything
    assert len(choose_pinning("shared").servers) == 1


@pytest.mark.integration
def test_a_client_process_measures_on_its_own_cores() -> None:
    cores = choose_pinning("split").client
    with ClientProcess(Sleeps(0.001), cores, callers_max=4) as client:
        sample = client.measure(Order(callers=4, warm_up_s=0.01, measure_s=0.1))
    assert sample.operations > 0


@pytest.mark.integration
def test_a_system_that_lost_a_row_is_no_contender() -> None:
    with (
        ClientProcess(Sleeps(0.001, is_lying=True), choose_pinning("none").client, 1) as client,
        pytest.raises(ContenderFailed, match="was acknowledged"),
    ):
        client.measure(Order(callers=1, warm_up_s=0.01, measure_s=0.01))


@pytest.mark.integration
def test_a_missing_peer_is_named_and_the_others_are_measured(tmp_path: Path) -> None:
    result = _quick_row_result(tmp_path)
    assert [line.contender for line in result.lines] == ["Dodona", "Dodona"]
    assert result.dropped == {"Peer": "no peer on PATH"}
    report = Report([("kernel", "any")], [result]).markdown()
    assert "Peer was not measured: no peer on PATH" in report
    assert "| 2 | Dodona |" in report
    assert bench.exit_status([result]) == 0


class ForgetsLater(Sleeps):
    """Of the second round a row is not there."""

    checks = 0

    async def check(self) -> None:
        self.checks += 1
        if self.checks == 2:
            raise ContenderFailed("a row was acknowledged and isn't there")


@pytest.mark.integration
def test_a_contender_that_loses_a_row_in_a_later_round_has_no_figures_or_goals(
    tmp_path: Path,
) -> None:
    @contextmanager
    def forget(folder: Path) -> Iterator[Running]:
        yield Running(ForgetsLater(0.001), "1.0")

    @contextmanager
    def keep(folder: Path) -> Iterator[Running]:
        yield Running(Sleeps(0.001), "1.0")

    contenders = (Contender("Dodona", forget), Contender("Peer", keep))
    goals = (Goal(1, rate_min=1), Goal(1, not_below="Peer"))
    row = Row("row", "A row", "Fair.", contenders, (1,), (1,), goals)
    plan = Plan(2, 0.01, 0.02, is_quick=False, pinning=choose_pinning("none"))
    result = run_row(row, plan, tmp_path, lambda text: None)
    assert [line.contender for line in result.lines] == ["Peer"]
    report = Report([], [result]).markdown()
    assert "goal" not in report
    assert (
        "Dodona was not measured: ContenderFailed: a row was acknowledged and isn't there" in report
    )
    assert bench.exit_status([result]) == 1


def _quick_row_result(folder: Path) -> RowResult:
    @contextmanager
    def start(own_folder: Path) -> Iterator[Running]:
        assert own_folder.is_dir()
        yield Running(Sleeps(0.001), "1.0")

    @contextmanager
    def miss(own_folder: Path) -> Iterator[Running]:
        raise ContenderMissing("no peer on PATH")
        yield

    row = Row("row", "A row", "Fair.", (Contender("Dodona", start), Contender("Peer", miss)),
              callers=(1, 2), callers_quick=(1,))  # fmt: skip
    plan = Plan(2, 0.01, 0.02, is_quick=False, pinning=choose_pinning("none"))
    said: list[str] = []
    result = run_row(row, plan, folder, said.append)
    assert "row: round 2, 2 callers, Dodona" in said
    return result


def test_a_row_with_its_own_pinning_leaves_the_cores_of_the_process_unchanged(
    tmp_path: Path,
) -> None:
    everywhere = os.sched_getaffinity(0)
    first_core = {min(everywhere)}
    seen: list[set[int]] = []

    @contextmanager
    def start(own_folder: Path) -> Iterator[Running]:
        seen.append(os.sched_getaffinity(0))
        yield Running(Sleeps(0.001), "1.0")

    row = Row("row", "A row", "Fair.", (Contender("Dodona", start),), (1,), (1,), pinning="shared")
    plan = Plan(1, 0.01, 0.02, is_quick=False, pinning=choose_pinning("none"))
    result = run_row(row, plan, tmp_path, lambda text: None)
    assert (seen, result.dropped) == ([first_core], {})
    assert os.sched_getaffinity(0) == everywhere


def test_the_report_states_dodona_in_terms_of_each_peer() -> None:
    contenders = tuple(Contender(name, _never) for name in ("Dodona", "Peer"))
    goals = (
        Goal(64, rate_min=1_500, not_below="Peer"),
        Goal(64, latency_ms_p50_max=0.3, not_below="Peer", times=2),
        Goal(64, not_below="Peer", times=2.5),
    )
    row = Row("row", "A row", "Fair.", contenders, (64,), (64,), goals)
    lines = [_line("Dodona", rates=[2_000, 3_000, 1_000], p50_us=400),
             _line("Peer", rates=[1_000], p50_us=800)]  # fmt: skip
    report = Report([], [RowResult(row, lines)]).markdown()
    assert "| 64 | Dodona | 2,000 ±50% | 0.400 |" in report
    assert "| 2.00× | 0.50× |" in report
    assert "| 10.0 | 5.0 |" in report
    assert "goal, 64 callers: at least 1,500 per second: met" in report
    assert "goal, 64 callers: not below Peer: met" in report
    assert "goal, 64 callers: 2 times Peer: met" in report
    assert "goal, 64 callers: 2.5 times Peer: missed" in report
    assert "goal, 64 callers: p50 at most 0.3 ms: missed" in report


@contextmanager
def _never(folder: Path) -> Iterator[Running]:
    raise ContenderMissing(str(folder))
    yield


def test_a_row_that_runs_in_the_client_shows_no_server_processor_time() -> None:
    row = Row("row", "A row", "Fair.", (Contender("Dodona", _never),), (64,), (64,))
    line = _line("Dodona", rates=[2_000], p50_us=400, servers_cpu_us=0.0)
    assert "| 10.0 | none |" in Report([], [RowResult(row, [line])]).markdown()


def _line(name: str, rates: list[int], p50_us: float, servers_cpu_us: float = 5.0) -> Line:
    samples = [Sample(rate, 0, 1.0, p50_us, p50_us * 2, 10.0) for rate in rates]
    return Line(64, name, tuple(Observation(sample, servers_cpu_us) for sample in samples))


def test_a_client_library_that_is_not_installed_is_a_missing_contender() -> None:
    with pytest.raises(ContenderMissing, match="no_such_client"):
        client_library("no_such_client")


def test_the_machine_is_described(tmp_path: Path) -> None:
    facts = dict(machine_facts(tmp_path))
    assert "cores" in facts["processor"]
    assert "fdatasync" in facts["disk"]
    assert "%" in facts["at the start"]


STARTS_A_SERVER = """
import sys
from pathlib import Path
from dodona_loadtest.harness.ending import end_in_order
from dodona_loadtest.harness.servers import ServerProcess
end_in_order()
with ServerProcess(["sleep", "120"], Path(sys.argv[1]), lambda: True) as server:
    while not Path(f"/proc/{server.pid}/cmdline").read_bytes().startswith(b"sleep"):
        pass  # the kernel does not know yet
    print(server.pid, flush=True)
    server._process.wait()
"""


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_when_the_benchmark_is_terminated_or_killed(
    tmp_path: Path, number: signal.Signals
) -> None:
    if number == signal.SIGKILL and bound(["true"]) == ["true"]:
        pytest.skip("no setpriv here")
    command = [sys.executable, "-c", STARTS_A_SERVER, str(tmp_path / "log")]
    with program(command, stdout=PIPE, stderr=PIPE, text=True) as benchmark:
        assert benchmark.stdout is not None
        server = Path(f"/proc/{int(benchmark.stdout.readline())}")
        assert server.exists()
        benchmark.send_signal(number)
        benchmark.communicate(timeout=WAIT_S_MAX)

    def has_ended() -> bool:
        return not server.exists() or "Z" in (server / "stat").read_text().rpartition(")")[2][:3]

    wait_until(has_ended, "it stayed behind")


@pytest.mark.integration
@pytest.mark.parametrize("name", ["bench", "load", "profile", "verify", "kills"])
def test_commands_that_start_others_end_in_order(name: str) -> None:
    source = Path(f"{bench.__file__}").with_name(f"{name}.py").read_text("utf-8")
    begin = source.index('if __name__ == "__main__":')
    assert source[begin:].split("\n")[1].strip() == "end_in_order()"


def test_figures_are_kept_as_soon_as_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends the run in the next row, and whatever the folder's name."""
    kept = tmp_path / "results" / "run.json"

    def run_row(row: Row, *_: object) -> RowResult:
        if row.name == "transactions":
            raise KeyboardInterrupt
        names = [contender.name for contender in row.contenders]
        return RowResult(row, [_line(name, [2_000], 400) for name in names])

    monkeypatch.setattr(bench, "run_row", run_row)
    words = ["--only", "commits", "--json", str(kept), "--folder", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        bench.main([*words, "--only", "transactions"])
    assert [result.name for result in read_recorded(kept).results] == ["commits"]
    markdown = tmp_path / "report.md"
    assert bench.main([*words, "--markdown", str(markdown)]) == 0
    assert "| 64 | etcd put | 2,000" in markdown.read_text("utf-8")


@pytest.mark.integration
def test_a_server_that_ends_immediately_is_reported_with_its_last_output(tmp_path: Path) -> None:
    server = ServerProcess(["sh", "-c", "echo no licence; exit 3"], tmp_path / "log", lambda: False)
    with pytest.raises(ContenderFailed, match="no licence"), server:
        pass


@pytest.mark.integration
def test_a_server_is_stopped_and_its_processor_time_is_measured(tmp_path: Path) -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass\nprint('up', flush=True)\n"
    log = tmp_path / "log"
    command = [sys.executable, "-c", spin + "time.sleep(60)"]
    with ServerProcess(command, log, lambda: b"up" in log.read_bytes()) as server:
        assert cpu_seconds([server.pid]) >= 0.15
        pid = server.pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_that_a_thread_started_is_counted_with_its_server(tmp_path: Path) -> None:
    """The kernel keeps children by the thread that they are of; Java starts Python in one."""
    program = (
        "import subprocess, sys, threading\n"
        "def start():\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "    print('up', child.pid, flush=True)\n"
        "    child.wait()\n"
        "threading.Thread(target=start).start()\n"
    )
    log = tmp_path / "log"
    command = [sys.executable, "-c", program]
    with ServerProcess(command, log, lambda: b"\n" in log.read_bytes()) as server:
        child = int(log.read_bytes().split()[1])
        assert families([server.pid]) == [server.pid, child]
