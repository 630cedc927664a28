"""What drives real clusters and judges them, as far as it needs none: journals, draws, verdicts.

Owns: the parts of `live` and `chaos` that are plain functions of what they are given.
"""

import asyncio
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import httpx
import pytest

from dodona._core.writing.outcomes import Outcome
from dodona.errors import Unavailable
from dodona.types import Timestamp
from dodona_loadtest.chaos.campaign import CampaignPlan, Summary, markdown
from dodona_loadtest.chaos.faults import draw_faults, role_of
from dodona_loadtest.chaos.links import CLIENT, KINDS, Link, draw_trouble
from dodona_loadtest.chaos.round import RoundPlan, RoundResult
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.harness.document import check_place, write_section
from dodona_loadtest.histories.history import (
    Acquisition,
    History,
    LatestRead,
    Read,
    RowKey,
    Scan,
    StampedRead,
    StampedWrite,
    Status,
    Transaction,
    Version,
    Write,
)
from dodona_loadtest.live.journal import Account, Journal, JournaledHistory, read_journal
from dodona_loadtest.live.outcomes import check_outcomes
from dodona_loadtest.live.resting import unfinished
from dodona_loadtest.live.run import Order, Report, Run
from dodona_loadtest.live.verdict import Counts, judge, percentile
from dodona_loadtest.workloads import WORKLOADS, Bank

ROW = RowKey("//t", b"\x01")
COLUMNS = (("v", "s1/1"),)
NAMES = ["master", "proxy", "proxy 1", "node 0", "node 1", "client 0", "client 1"]


@pytest.fixture
def history() -> JournaledHistory:
    return JournaledHistory()


@pytest.fixture
def violations() -> list[Violation]:
    return []


@pytest.fixture
def journal(tmp_path: Path, history: JournaledHistory, violations: list[Violation]) -> Journal:
    return Journal(tmp_path / "journal", history, violations)


def read(tmp_path: Path) -> Account:
    account = Account()
    account.add(read_journal(tmp_path / "journal"))
    return account


def test_tables_that_stay_behind_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is judged by then."""

    async def finish() -> Report:
        run = Run(Order("http://nowhere", "bank", 1))

        async def run_protocol(*_: object) -> None:
            raise Unavailable("nobody is there")

        async def judge_nothing() -> None:
            pass

        monkeypatch.setattr(run, "_rest_and_judge", judge_nothing)
        monkeypatch.setattr(run.session_group, "run", run_protocol)
        return await run.finish()

    report = asyncio.run(finish())
    assert report.violations == []
    assert report.notes == ["the tables were not removed: nobody is there"]
    assert report.notes[0] in report.lines()


# ---- journals


def test_a_commit_is_in_the_journal_before_it_is_sent_and_again_after_it_ends(
    tmp_path: Path, history: JournaledHistory, journal: Journal
) -> None:
    t = history.begin("s1", 10)
    t.start, t.begun_us = 5, 11
    journal.save("s1")
    assert read(tmp_path).history.transactions == []  # nobody can have noticed it yet
    t.writes.append(Write(ROW, COLUMNS, (0, 1)))
    t.commit_us = 12
    journal.save("s1")
    assert read(tmp_path).history.transactions == [t]
    assert t.status == "open"
    t.status, t.commit, t.end_us = "ok", 7, 13
    journal.save("s1")
    assert read(tmp_path).history.transactions == [t]
    assert t.status == "ok"


def test_the_journal_returns_the_observations_of_a_process_unchanged(
    tmp_path: Path, history: JournaledHistory, journal: Journal, violations: list[Violation]
) -> None:
    t = history.begin("s1", 10)
    t.is_blind, t.names, t.commit_us = True, [1 << 61], 11
    t.reads.append(Read(ROW, None))
    t.scans.append(Scan("//t", b"", b"\xff", (Read(ROW, COLUMNS),)))
    history.acquisitions.append(Acquisition("s1", 1, 2, 3, 4))
    history.latest_reads.append(LatestRead(1, 2, Read(ROW, COLUMNS)))
    violations.append(Violation("INVARIANT", "the total is off"))
    journal.close()
    account = read(tmp_path)
    assert repr(account.history.transactions) == repr([t])
    assert account.history.acquisitions == history.acquisitions
    assert account.history.latest_reads == history.latest_reads
    assert account.violations == violations


def test_nested_values_come_back_as_the_tuples_that_they_were(
    tmp_path: Path, history: JournaledHistory, journal: Journal
) -> None:
    """A campaign of kills failed in its verdict: lists can't be hashed."""
    nested = (("v", (1, ("a", 2))),)
    t = history.begin("s1", 10)
    t.commit_us = 11
    t.reads.append(Read(ROW, nested))
    t.writes.append(Write(ROW, nested))
    t.scans.append(Scan("//t", b"", b"\xff", (Read(ROW, nested),)))
    history.latest_reads.append(LatestRead(1, 2, Read(ROW, nested)))
    history.stamped_reads.append(StampedRead("s1", 1, 2, Read(ROW, nested)))
    history.stamped_writes.append(StampedWrite("s1", 1, Write(ROW, nested), True, 10))
    journal.close()
    found = read(tmp_path).history
    assert (found.transactions, found.latest_reads) == ([t], history.latest_reads)
    assert found.stamped_reads == history.stamped_reads
    assert found.stamped_writes == history.stamped_writes
    assert len({*found.transactions[0].writes, *found.transactions[0].reads}) == 2


def test_transactions_of_one_step_are_all_written_down(
    tmp_path: Path, history: JournaledHistory, journal: Journal
) -> None:
    first, second = history.begin("s1", 10), history.begin("s1", 12)
    first.end_us, second.commit_us = 11, 13
    journal.save("s1")
    assert read(tmp_path).history.transactions == [first, second]


def test_nothing_is_written_twice(
    tmp_path: Path, history: JournaledHistory, journal: Journal
) -> None:
    history.acquisitions.append(Acquisition("s1", 1, 2, 3, 4))
    t = history.begin("s1", 10)
    t.commit_us = t.end_us = 11
    for _ in range(3):
        journal.save("s1")
    journal.close()
    assert len(list(read_journal(tmp_path / "journal"))) == 1


def test_rows_of_a_call_are_in_the_journal_before_it_is_sent_and_after_its_answer(
    tmp_path: Path, history: JournaledHistory, journal: Journal
) -> None:
    other = RowKey("//t", b"\x02")
    writes = [StampedWrite("s1", 0, Write(row, COLUMNS), True, 10) for row in (ROW, other)]
    history.stamped_writes += writes
    history.stamped_reads.append(StampedRead("s1", 1, 2, Read(ROW, None)))
    journal.save("s2")
    assert read(tmp_path).history.stamped_writes == []
    journal.save("s1")
    account = read(tmp_path).history
    assert account.stamped_writes == writes
    assert account.stamped_reads == history.stamped_reads
    for write in writes:
        write.status, write.answered_us, write.cell = "ok", 11, 1
    journal.save("s1")
    assert read(tmp_path).history.stamped_writes == writes
    entries = len(list(read_journal(tmp_path / "journal")))
    journal.close()
    assert len(list(read_journal(tmp_path / "journal"))) == entries


def test_a_torn_last_entry_is_left_out(
    tmp_path: Path, history: JournaledHistory, journal: Journal
) -> None:
    for session in ("s1", "s2"):
        history.begin(session, 10).commit_us = 11
        journal.save(session)
    path = tmp_path / "journal"
    whole = path.read_bytes()
    second = len(whole) // 2
    for end in range(second, len(whole)):
        path.write_bytes(whole[:end])
        assert [t.session for t in read(tmp_path).history.transactions] == ["s1"]
    path.write_bytes(whole[: second - 1])
    assert list(read_journal(path)) == []


# ---- verdicts


def written(status: Status, commit: int | None) -> History:
    """One transaction that wrote one row."""
    history = History()
    t = history.begin("s1", 10)
    t.start, t.begun_us, t.commit_us, t.status, t.commit = 5, 11, 12, status, commit
    t.end_us = 13 if status == "ok" else None
    t.writes.append(Write(ROW, COLUMNS))
    return history


def only(history: History) -> Transaction:
    (t,) = history.transactions
    return t


@pytest.mark.parametrize(
    ("outcome", "dump", "count"),
    [
        (Outcome("committed", Timestamp(7)), [Version(ROW, 7, COLUMNS)], 0),
        (Outcome("aborted"), [], 0),
        (Outcome("unknown"), [], 0),
        (Outcome("unknown"), [Version(ROW, 7, COLUMNS)], 0),
        (Outcome("committed", Timestamp(7)), [], 1),
        (Outcome("committed", Timestamp(8)), [Version(ROW, 7, COLUMNS)], 1),
        (Outcome("aborted"), [Version(ROW, 7, COLUMNS)], 1),
    ],
)
def test_an_outcome_and_the_rows_have_to_agree(
    outcome: Outcome, dump: list[Version], count: int
) -> None:
    history = written("info", None)
    assert len(check_outcomes([(only(history), [outcome])], history, dump)) == count


def test_a_run_is_judged_by_its_history_and_by_its_workload() -> None:
    class Strict(Bank):
        def check(self, history: History) -> list[Violation]:
            return [Violation("EXT", f"{len(history.transactions)} looked at")]

    workload = Strict(Random(1))
    workload.flag("seen on the way")
    found = judge(written("ok", 7), [], workload)
    assert [violation.promise for violation in found] == ["DURABILITY", "INVARIANT", "EXT"]
    assert judge(written("ok", 7), [Version(ROW, 7, COLUMNS)], Bank(Random(1))) == []


def test_counts_are_of_commits_and_add_up() -> None:
    conflict = written("fail", None)
    only(conflict).error = "transaction_conflict: somebody was faster"
    counts = Counts.of(written("ok", 7)) + Counts.of(written("open", None)) + Counts.of(conflict)
    assert (counts.commits_asked, counts.committed, counts.conflicts, counts.unsure) == (3, 1, 1, 1)
    assert counts.latencies_ms == (0.003,)


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([4.0], 0.5) == 4.0


# ---- rest


@pytest.mark.anyio
async def test_a_node_that_starts_or_has_transactions_is_not_at_rest() -> None:
    cell = {"transactions_alive": 1, "transactions_prepared": 0, "reads_waiting": 0}
    at_rest = {**cell, "transactions_alive": 0}
    answers = [
        httpx.Response(503, json={"detail": "the server is starting"}),
        httpx.Response(200, json={"cell": cell}),
        httpx.Response(200, json={"cell": at_rest}),
    ]
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answers.pop(0))) as http:
        assert "503" in await unfinished(http, "http://node")
        assert "1 transactions are alive" in await unfinished(http, "http://node")
        assert await unfinished(http, "http://node") == ""


# ---- draws


def test_a_seed_draws_the_same_faults_and_troubles_again() -> None:
    def drawn(seed: int) -> list[object]:
        random = Random(seed)
        links = [Link(CLIENT, "node 0"), Link("node 0", "node 1"), Link("node 1", "node 0")]
        faults = islice(draw_faults(seed, NAMES, 100.0), 50)
        return [*faults, *(draw_trouble(random, links, 100.0) for _ in range(50))]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize("names", [NAMES, [*NAMES, "replica 0", "replica 1", "etcd 0"]])
def test_every_role_is_hit_alone_and_with_another_and_paused(names: list[str]) -> None:
    roles = {role_of(name) for name in names}
    faults = list(islice(draw_faults(1, names, 100.0), 500))
    kills = [fault for fault in faults if not fault.pause_ms]
    assert {name for fault in kills for name in fault.targets if len(fault.targets) == 1} == {
        *names
    }
    pairs = [fault.targets for fault in kills if len(fault.targets) == 2]
    assert len({frozenset(map(role_of, pair)) for pair in pairs}) > len(roles)
    assert all(first != second for first, second in pairs)
    paused = {role_of(name) for fault in faults if fault.pause_ms for name in fault.targets}
    assert paused == roles


def test_troubles_of_all_kinds_befall_links_alone_and_together() -> None:
    random = Random(1)
    links = [Link(CLIENT, "node 0"), Link("node 0", "node 1"), Link("node 1", "node 0")]
    troubles = [draw_trouble(random, links, 100.0) for _ in range(200)]
    assert {trouble.kind for trouble in troubles} == {*KINDS}
    assert {len(trouble.links) for trouble in troubles} == {1, 2, 3}


def test_rounds_share_the_kills_and_the_workloads_take_turns() -> None:
    rounds = CampaignPlan(kills=50, seed=1).rounds()
    assert [it.kills for it in rounds] == [20, 20, 10]
    assert len({it.workload for it in rounds}) == min(3, len(WORKLOADS))
    assert rounds == CampaignPlan(kills=50, seed=1).rounds()


# ---- the report


def test_a_summary_lists_kills_recoveries_and_violations() -> None:
    plan = CampaignPlan(kills=3, seed=9)
    result = RoundResult(
        RoundPlan(1, "bank", 0.5, kills=3),
        kills=[(1, "node 0"), (2, "node 1"), (3, "proxy 1")],
        pauses=[(4, "master")],
        counts=Counts.of(written("ok", 7)),
        recoveries=[("node", 1500.0), ("node", 2500.0)],
        seconds=12.0,
    )
    summary = Summary(plan, [result])
    text = "\n".join(summary.lines())
    assert "3 kills: 0 master, 1 proxy, 2 node, 0 client" in text
    assert "kill of a node: p50 1.50 s, p99 2.50 s (2 times)" in text
    assert text.endswith("0 violations")
    assert "| node | 2 | 1.50 | 2.50 |" in markdown(summary)
    assert "| proxy | 1 | unknown | unknown |" in markdown(summary)
    broken = replace(result, violations=[Violation("GHOST", "boo")])
    text = "\n".join(Summary(plan, [result, broken]).lines())
    assert text.endswith("1 violations\nGHOST: boo")


def test_a_new_section_replaces_the_old_one_and_the_rest_of_the_page_stays(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    check_place(path, "kills")
    write_section(path, "kills", "first")
    assert path.read_text() == "<!-- kills: begin -->\n\nfirst\n\n<!-- kills: end -->\n"
    path.write_text(f"# Title\n\n{path.read_text()}\nThe end.\n")
    write_section(path, "kills", "second")
    text = path.read_text()
    assert text.startswith("# Title\n\n<!-- kills: begin -->\n\nsecond\n\n<!--")
    assert text.endswith("<!-- kills: end -->\n\nThe end.\n")
    assert "first" not in text


def test_a_document_without_the_section_s_markers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("<!-- kills: begin --> and no end")
    for attempt in (check_place, lambda path, name: write_section(path, name, "text")):
        with pytest.raises(ValueError, match="has no place for it"):
            attempt(path, "kills")
    assert path.read_text() == "<!-- kills: begin --> and no end"
