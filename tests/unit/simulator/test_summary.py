"""Many runs added up, and the place in a document where it says so."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.harness.document import check_place, write_section
from simulator import report
from simulator.pool import Failed
from simulator.runner import (
    AGAIN_RATE,
    ELSEWHERE_COUNT,
    FAILED_SEEDS_MAX,
    Job,
    Work,
    compare,
    plan,
    run_seeds,
)
from simulator.simulation import Result, simulate
from simulator.summary import Summary

BEGIN, END = "<!-- simulation: begin -->", "<!-- simulation: end -->"


def result(seed: int, *violations: Violation, **counts: int) -> Result:
    return Result(
        seed,
        "bank",
        60,
        list(violations),
        f"digest {seed}",
        {name.replace("_", " "): count for name, count in counts.items()},
        {"crash cell": 3, "cut link": 2, "datagram slow": 7, "crash with disk kept": 1},
        5,
        {"Prepare": 5},
        {"LOSE_ANSWER": 1},
        acknowledgement="decided",
    )


def counted(commits_asked_for: int, conflicts: int, told_unknown: int, committed: int) -> Result:
    return result(
        1,
        commits_asked_for=commits_asked_for,
        conflicts=conflicts,
        told_unknown=told_unknown,
        committed=committed,
    )


def goals_met(*results: Result) -> dict[str, bool]:
    summary = Summary(60)
    for each in results:
        summary.add(each, 0.5)
    return {goal.name: goal.is_met for goal in summary.goals}


def test_runs_add_up() -> None:
    summary = Summary(60)
    summary.add(result(1, virtual_seconds=62, crashes=4), 0.5)
    summary.add(result(2, virtual_seconds=63, crashes=1), 1.5, "elsewhere")
    summary.add(result(3, virtual_seconds=61), 0.5, "here")
    summary.elapsed_seconds = 1.5
    assert summary.seed_count == 3
    assert summary.virtual_seconds == 186
    assert summary.ratio == 124
    assert summary.core_ratio == pytest.approx(74.4)
    assert summary.counts["crashes"] == 5
    assert summary.scheduled_faults == {"crash cell": 9, "cut link": 6}
    assert summary.other_faults == {"crash with disk kept": 3, "datagram slow": 21}
    assert summary.messages == {"Prepare": 15}
    assert summary.fault_points == {"LOSE_ANSWER": 3}
    assert summary.workloads == {"bank": 3}
    assert summary.acknowledgements == {"decided": 3}
    assert (summary.again_count, summary.again_elsewhere_count) == (2, 1)
    assert summary.failures == []


def test_shares_are_judged_over_all_runs_and_not_in_each() -> None:
    gone = result(2, gone_while_committing=1)
    met = goals_met(counted(90, 10, 0, 80), counted(110, 0, 1, 0), gone)
    assert met["conflicts"]
    assert met["ambiguous outcomes"]
    assert met["committed"]
    missed = goals_met(counted(100, 4, 0, 29))
    assert not missed["conflicts"]
    assert not missed["ambiguous outcomes"]
    assert not missed["committed"]


def test_points_that_were_never_hit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.summary.FAULT_POINTS", ("LOSE_ANSWER", "ASK_TWICE"))
    summary = Summary(60)
    summary.add(result(1), 0.5)
    assert summary.points_never_hit == ["ASK_TWICE"]
    assert not goals_met(result(1))["fault points hit"]
    assert "| ASK_TWICE | 0 |" in report.markdown(summary, "command")


def test_one_seed_with_a_violation_is_a_failure() -> None:
    summary = Summary(60)
    failed = result(2, Violation("EXT", "read what nobody wrote"))
    summary.add(result(1), 0.5)
    summary.add(failed, 0.5)
    assert summary.failures == [failed]
    assert not goals_met(failed)["seeds with a violation"]
    assert goals_met(result(1))["seeds with a violation"]


# What is shown


def test_the_screen_shows_each_count_and_each_failure() -> None:
    summary = Summary(60)
    summary.add(result(2, Violation("EXT", "read [1] as (2)"), transactions=1_234), 0.5)
    console = Console(file=StringIO(), width=120)
    report.show(summary, console)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    for word in ("crash cell", "1,234", "Prepare", "EXT: read [1] as (2)", "simulator 2 --work"):
        assert word in text


def test_writing_a_section_leaves_the_rest_of_the_document_unchanged(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nwhat was there\n{END}\nafter\n", "utf-8")
    summary = Summary(60)
    summary.add(result(1), 0.5)
    for _ in range(2):
        check_place(page, report.SECTION)
        write_section(page, report.SECTION, report.markdown(summary, "the command"))
    text = page.read_text("utf-8")
    assert text.startswith(f"before\n{BEGIN}\n\n`the command`\n")
    assert text.endswith(f"| Prepare | 5 |\n\n{END}\nafter\n")
    assert "what was there" not in text
    assert text.count("the command") == 1


def test_a_document_is_made_where_there_is_none(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    check_place(page, report.SECTION)
    write_section(page, report.SECTION, report.markdown(Summary(60), "the command"))
    check_place(page, report.SECTION)


def test_a_document_without_a_place_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{END} {BEGIN}", "utf-8")
    with pytest.raises(ValueError, match=r"page\.md has no place"):
        check_place(page, report.SECTION)


# What is run again


def test_one_seed_in_twenty_is_run_twice_and_some_of_them_elsewhere() -> None:
    jobs = plan(range(1_000))
    assert [job.seed for job in jobs] == list(range(1_000))
    again = [job for job in jobs if job.again]
    assert len(again) == 1_000 * AGAIN_RATE
    assert sum(job.again == "elsewhere" for job in jobs) == ELSEWHERE_COUNT
    assert plan(range(1_000)) == jobs


def test_the_fewest_seeds_have_one_that_is_run_twice() -> None:
    assert plan([7]) == [Job(7, "elsewhere")]


def test_a_second_run_with_another_history_is_a_violation() -> None:
    first = simulate(3, 2)
    compare(first, first.digest)
    assert first.violations == []
    compare(first, "another")
    assert [violation.promise for violation in first.violations] == ["DETERMINISM"]


@pytest.mark.parametrize("again", ["here", "elsewhere"])
def test_a_seed_is_compared_with_itself(again: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run is made up here: it is the first that must match it."""
    first = simulate(3, 2, "bank")
    outcome = Work(2, "bank")(Job(3, again))  # type: ignore[arg-type]
    assert outcome.result.violations == []
    assert outcome.result.digest == first.digest
    runs = iter([first, simulate(4, 2, "bank")])
    monkeypatch.setattr("simulator.runner.simulate", lambda *_: next(runs))
    monkeypatch.setattr("simulator.runner.digest_elsewhere", lambda _: "another")
    (violation,) = Work(2, "bank")(Job(3, again)).result.violations  # type: ignore[arg-type]
    assert violation.promise == "DETERMINISM"


def test_a_batch_of_failures_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Work, jobs: list[Job], __: int) -> Iterator[tuple[Job, Failed]]:
        yield from ((job, Failed("its process ended with exit code -9")) for job in jobs)

    monkeypatch.setattr("simulator.runner.work_off", fail)
    seen: list[int] = []
    summary = run_seeds(range(1_000), Work(60), 1, lambda it, _: seen.append(it.seed_count))
    assert [it.seed for it in summary.failures] == list(range(FAILED_SEEDS_MAX))
    assert seen == list(range(1, FAILED_SEEDS_MAX + 1))


def test_a_run_that_did_not_end_is_a_violation_with_its_seed() -> None:
    lost = Work(2).lost(Job(7, ""), "its process ended with exit code -9")
    (violation,) = lost.result.violations
    assert violation.promise == "CRASH"
    assert "exit code -9" in violation.text
    assert lost.result.seed == 7
