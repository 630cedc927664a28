"""What a load test is told, counts and says in the end. Locust patches whatever process it is in:
what needs it has one of its own."""

import argparse
import subprocess
import sys
from pathlib import Path
from random import Random
from subprocess import CompletedProcess
from typing import Self

import pytest

from dodona_loadtest import load
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import Acquisition
from dodona_loadtest.live.run import Order, Report
from dodona_loadtest.scenarios import SCENARIOS
from dodona_loadtest.scenarios.parameters import options
from dodona_loadtest.swarm.options import Asked, add_options, read_options
from dodona_loadtest.swarm.tally import LIMITS, Tally
from dodona_loadtest.swarm.verdict import FAILED, NOTHING_TO_JUDGE, PASSED, Verdict
from dodona_loadtest.workloads import WORKLOADS

README = Path(__file__).parents[3] / "loadtest" / "README.md"


def tally() -> Tally:
    """100 reads of 1 to 100 ms, and 50 writes of which 10 lost and 5 found nobody."""
    made = Tally()
    for number in range(100, 0, -1):
        made.note("read", number * 1_000, None)
    for number in range(50):
        refusal = "transaction_conflict" if number < 10 else "unavailable" if number < 15 else None
        made.note("write", 2_000, refusal)
    return made


def judged(name: str, limit: float) -> list[tuple[str, bool]]:
    return [(it.text, it.is_kept) for it in tally().judge({name: limit}, 10.0)]


def test_the_table_lists_each_operation_and_its_refusals_by_kind() -> None:
    lines = tally().lines(10.0)
    assert lines[2] == "| read | 100 | 10 | 50.0 | 99.0 |  |"
    assert lines[3] == "| write | 35 | 4 | 2.0 | 2.0 | 10 transaction_conflict, 5 unavailable |"


@pytest.mark.parametrize(
    ("name", "kept", "broken", "text"),
    [
        ("p50-ms-max", 50, 49.9, "read: p50 50.0 ms"),
        ("p99-ms-max", 99, 98.9, "read: p99 99.0 ms"),
        ("rate-min", 13.5, 13.6, "14 operations a second"),
        ("failure-ratio-max", 0.034, 0.033, "failures 3.33%"),
        ("conflict-ratio-max", 0.067, 0.066, "conflicts 6.67%"),
    ],
)
def test_a_limit_is_kept_or_broken(name: str, kept: float, broken: float, text: str) -> None:
    assert judged(name, kept)[0] == (f"{text}, limit {kept:g}", True)
    assert judged(name, broken)[0] == (f"{text}, limit {broken:g}", False)
    assert name in [limit.name for limit in LIMITS]


def test_a_limit_that_is_not_set_is_not_judged() -> None:
    assert tally().judge({limit.name: None for limit in LIMITS}, 10.0) == []


def verdict(made: Tally, limits: dict[str, float | None], *violations: Violation) -> Verdict:
    report = Report(Order("http://here", "row_commits", 1), seconds=10.0)
    report.history.acquisitions.append(Acquisition("s1", 1, 2, 3, 3))
    report.violations += violations
    return Verdict("a title", report, made, made.judge(limits, 10.0), ["a note"])


def test_a_test_passes_only_if_all_is_well() -> None:
    passed = verdict(tally(), {"rate-min": 1.0})
    assert passed.exit_code == PASSED
    assert passed.lines()[-3:] == ["no violation", "", "PASSED"]
    assert "- a note" in passed.lines()
    assert any("1 records and 0 versions" in line for line in passed.lines())
    slow = verdict(tally(), {"rate-min": 100.0})
    assert slow.exit_code == FAILED
    assert slow.lines()[-1] == "FAILED"
    broken = verdict(tally(), {}, Violation("EXT", "read something else"))
    assert broken.exit_code == FAILED
    assert broken.lines()[-4:] == ["EXT: read something else", "1 violations", "", "FAILED"]


def test_where_nothing_was_acknowledged_there_is_nothing_to_judge() -> None:
    refused = Tally()
    refused.note("write", 1, "unavailable")
    assert verdict(refused, {}).exit_code == NOTHING_TO_JUDGE
    assert verdict(refused, {}, Violation("CRASH", "at once")).exit_code == FAILED


def refused(count: int) -> Tally:
    """Increments that all lost to somebody, and one lookup."""
    made = Tally()
    made.note("lookup", 1_000, None)
    for _ in range(count):
        made.note("increment", 1, "transaction_conflict")
    return made


def test_a_load_test_fails_if_no_call_of_an_operation_is_acknowledged() -> None:
    limits: dict[str, float | None] = {"failure-ratio-max": 0.01, "p99-ms-max": 5.0}
    failed = verdict(refused(5_000), limits)
    assert failed.exit_code == FAILED
    assert [str(it) for it in failed.judgements if not it.is_kept] == [
        "increment: none of 5,000 was acknowledged: BROKEN",
        "increment: p99 of nothing, limit 5: BROKEN",
    ]
    assert verdict(refused(5), limits).exit_code == PASSED, "too few for anything to follow"


USES = """
import locust, dodona_loadtest.swarm.users as users
from types import SimpleNamespace as Some
clock, told = [0], []
users.now_us = lambda: clock[0]
users.gevent.sleep = lambda seconds: clock.__setitem__(0, clock[0] + int(seconds * 1e6))
it = users.RestUser.__new__(users.RestUser)
it._db = Some(refusal=None, aside_us=0, doing="write")
it.tell = lambda *words: told.append(words)
def step(db):
    clock[0] += 7_000
    it._wait_s = 1.5
    db.aside_us += 5_000
    return
    yield
it._trial = Some(asked=Some(order=Some(think_ms_mean=0.0)), workload=Some(step=step))
users._Session.step(it)
print(told, it.wait_time())
"""


@pytest.mark.integration
@pytest.mark.part("locust runs")
def test_neither_pauses_between_tries_nor_questions_are_latency() -> None:
    done = subprocess.run(
        [sys.executable, "-c", USES], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "[('write', None, 2000)] 1.5\n", done.stderr


# ---- a private cluster


class Started:
    """A cluster that is none."""

    master_url = "http://master"
    gateway_urls = ("http://gateway",)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("statuses", "status"), [([0, 0], 0), ([0, 2], 2), ([2, 1], 1), ([1, 0], 1)]
)
def test_the_worst_of_several_tests_is_the_exit_status(
    statuses: list[int],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> CompletedProcess[str]:
        commands.append(command)
        return CompletedProcess(command, statuses[len(commands) - 1], "said\n", "")

    monkeypatch.setattr(load, "LocalCluster", Started)
    monkeypatch.setattr("subprocess.run", run)
    assert load.main(["--scenario", "scans", "--seconds", "7", "--rows", "50"]) == status
    assert [" ".join(command).partition(" --users")[0].split()[-4:] for command in commands] == [
        ["--host", "http://master", "--master-url", "http://master"],
        ["--host", "http://gateway", "--master-url", "http://master"],
    ]
    assert all(
        command[-6:-2] == ["--run-time", "7s", "--scenario", "scans"] for command in commands
    )
    assert all(command[-2:] == ["--rows", "50"] for command in commands)
    assert "scans, python: " in capsys.readouterr().out


def test_a_test_that_does_not_end_fails_and_the_others_have_their_verdicts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **_: object) -> CompletedProcess[str]:
        if "http://gateway" in command:
            return CompletedProcess(command, 0, "said\n", "")
        raise subprocess.TimeoutExpired(command, 307.0, output=b"so far")

    monkeypatch.setattr(load, "LocalCluster", Started)
    monkeypatch.setattr("subprocess.run", run)
    assert load.main(["--scenario", "scans", "--seconds", "7"]) == 1
    shown = capsys.readouterr()
    assert "so far" in shown.out
    assert "scans, python: FAILED\nscans, rest: passed" in shown.out
    assert "it did not end within 307 s" in shown.err


LISTENS = """
import dodona_loadtest.swarm.listeners as listeners
from dodona_loadtest.swarm.tally import Tally
class Environment: process_exit_code = 2
class Trial:
    tally, seconds = Tally(), 1.0
    def finish(self): raise AssertionError("a checker's")
Trial.tally.note("write", 1_000, None)
environment = Environment()
listeners._trials[environment] = Trial()
try:
    listeners._judge(environment)
except AssertionError:
    print("status", environment.process_exit_code)
"""


@pytest.mark.integration
@pytest.mark.part("locust runs")
def test_a_verdict_that_could_not_be_reached_is_no_success() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTENS], capture_output=True, text=True, timeout=60, check=True
    )
    assert "| write | 1 | 1 |" in done.stdout
    assert done.stdout.endswith("FAILED: it could not be judged\nstatus 1\n")


TOLD_TWICE = """
import gevent
import dodona_loadtest.swarm.listeners as listeners
class Environment: process_exit_code = 2
class Verdict:
    exit_code = 0
    def lines(self): return ["PASSED"]
class Trial:
    def finish(self):
        gevent.sleep(0.2)
        return Verdict()
environment = Environment()
listeners._trials[environment] = Trial()
first = gevent.spawn(listeners._judge, environment)
gevent.sleep(0.05)
listeners._judge(environment)  # after which Locust ends the process
print("status", environment.process_exit_code)
"""


@pytest.mark.integration
@pytest.mark.part("locust runs")
def test_a_load_test_that_ends_for_two_reasons_waits_for_its_verdict() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOLD_TWICE], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "PASSED\nstatus 0\n"


# ---- options


def read(*words: str, host: str | None = "http://here") -> Asked:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return read_options(parser.parse_args(words), host)


def test_options_become_an_order(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    asked = read(
        *("--scenario", "smallbank", "--rows", "50", "--hotspot-share", "0.5", "--seed", "7"),
        *("--p99-ms-max", "9", "--token-file", str(tmp_path / "token"), "--master-url", "http://m"),
    )
    assert (asked.order.master_url, asked.order.workload, asked.order.seed) == (
        "http://m",
        "smallbank",
        7,
    )
    assert (asked.parameters.rows, asked.parameters.hotspot_share) == (50, 0.5)
    assert (asked.limits["p99-ms-max"], asked.limits["failure-ratio-max"]) == (9.0, 0.01)
    assert asked.token == "secret"


@pytest.mark.parametrize("name", [*SCENARIOS, *WORKLOADS])
def test_every_scenario_and_workload_can_be_asked_for(name: str) -> None:
    made = read("--scenario", name).make(Random(1))
    assert made.name == name


def test_options_that_make_no_difference_are_named() -> None:
    assert read("--scenario", "hot_rows", "--rows", "50", "--hot-rows", "9").ignored == ["--rows"]
    assert read("--scenario", "bank", "--rows", "5000").ignored == ["--rows"]
    assert read("--scenario", "ycsb_e", "--rows", "50", "--scan-rows-max", "9").ignored == []
    assert read("--scenario", "bank").ignored == []


PAUSES = """
import locust, dodona_loadtest.swarm.users as users
from types import SimpleNamespace as Some
users.trial_of = lambda environment: Some(asked=Some(order=Some(seed=7, think_ms_mean=5.0)))
kept = []
def pause_of(name):
    it = users.PythonUser.__new__(users.PythonUser)
    kept.append(it)
    it.environment, it.new_session = None, lambda: Some(name=name)
    it.on_start()
    return it.wait_time()
print(pause_of("s1") == pause_of("s1") != pause_of("s2"))
"""


@pytest.mark.integration
@pytest.mark.part("locust runs")
def test_the_seed_determines_the_pauses_of_a_session() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PAUSES], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rows", "1"], "--rows must be at least 2"),
        (["--think-ms", "-1"], "must not be negative"),
        (["--records-max", "0"], "--records-max must be positive"),
    ],
)
def test_invalid_options_of_a_load_test_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(*words)
    with pytest.raises(ValueError, match="--host is missing"):
        read(host=None)


def test_every_option_is_in_the_help_and_on_the_page() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    said, page = " ".join(parser.format_help().split()), README.read_text("utf-8")
    for option in options():
        assert option.about.meaning in said
        default = f"`{option.default}`"
        row = f"| `{option.flag}` | {option.about.meaning} | {option.about.scenarios} | {default} |"
        assert row in page
    for limit in LIMITS:
        assert f"| `--{limit.name}` | {limit.meaning} |" in page
    for name, scenario in SCENARIOS.items():
        assert f"| `{name}` | {scenario.summary} |" in page


@pytest.mark.integration
@pytest.mark.part("locust runs")
def test_a_user_of_a_load_test_can_be_stopped_twice() -> None:
    """By the end of the time, and by a history that is full."""
    code = """
import locust, dodona_loadtest.swarm.users as users
it = users.PythonUser.__new__(users.PythonUser)
it._state = "running"
print(it.stop(), it.stop(), it._state)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False False stopping\n"
