"""A node's way to the oracle: who may share a question, above all one that was asked early. And
what is said of a master that does not take its heartbeats.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from dodona.types import CellId, Now, Timestamp, TransactionId
from dodona_server.runtime import Runtime
from dodona_tablets.shell import links as links_module
from dodona_tablets.shell.links import Links
from dodona_wire.cores.effects import AskTimestamps, Effect
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Heartbeat
from dodona_wire.messages.data import (
    AskOutcome,
    CommitOne,
    GenerateTimestamps,
    Prepare,
    TimestampRange,
)
from dodona_wire.messages.families import Reply
from dodona_wire.net.cluster_key import ClusterKey

pytestmark = pytest.mark.anyio

AWAY = Failure("unavailable", "the master is away")


class FakePeer:
    """Stands in for the connection to the oracle: the test answers, or it fails at once."""

    def __init__(self, url: str, *, timeout_ms: int, key: ClusterKey | None) -> None:
        self.questions: list[tuple[int, Callable[[Reply], None]]] = []
        self.is_away = False
        self.beats: list[Reply] = []
        """Answers to heartbeats, the next one first."""

    async def tell(self, body: Heartbeat) -> Reply:
        return self.beats.pop(0)

    def ask(self, body: GenerateTimestamps, then: Callable[[Reply], None]) -> None:
        if self.is_away:
            then(AWAY)
        else:
            self.questions.append((body.count, then))

    @property
    def counts(self) -> list[int]:
        return [count for count, _ in self.questions]

    def answer(self, first: int) -> None:
        count, then = self.questions.pop(0)
        then(TimestampRange(Timestamp(first), count))

    async def close(self) -> None: ...


class Core:
    """Asks for a timestamp for each request whose transaction is even."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.got: list[tuple[Any, int]] = []
        self.reasons: list[str] = []

    def handle(self, route: Any, body: Any, now: Now) -> None:
        if body.transaction % 2 == 0:
            self.effects.append(AskTimestamps(body.transaction))

    def handle_timestamp(self, token: Any, timestamp: Timestamp, now: Now) -> None:
        self.got.append((token, timestamp))

    def note_oracle_failure(self, reason: str, now: Now) -> None:
        self.reasons.append(reason)

    def tick(self, now: Now) -> None: ...

    def next_deadline(self) -> int | None:
        return None

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects


class Bench:
    """A runtime over the core above, with real links to a fake oracle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(links_module, "MasterPeer", FakePeer)
        self.core = Core()
        self.links = Links(self.core, "http://127.0.0.1:1")  # type: ignore[arg-type]
        handlers = self.links.handlers()
        self.runtime = Runtime(self.core, None, handlers, foresee=self.links.foresee)
        self.links.open(self.runtime)
        self.runtime.start()
        self.oracle: FakePeer = self.links._oracle  # type: ignore[assignment]

    def frame(self, *bodies: Any) -> None:
        self.runtime.handle_frame(self, [(1, body) for body in bodies], 10)

    def reply(self, request_id: int, body: Reply) -> None: ...


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def commit(number: int) -> CommitOne:
    return CommitOne(TransactionId(number), ())


def prepare(number: int) -> Prepare:
    return Prepare(TransactionId(number), (CellId(0), CellId(1)), ())


async def test_one_early_request_asks_for_the_timestamps_of_all_commits_in_a_frame(
    bench: Bench,
) -> None:
    bench.frame(commit(2), AskOutcome(TransactionId(3)), prepare(4))
    assert bench.oracle.counts == [2]
    bench.oracle.answer(100)
    assert bench.core.got == [(2, 100), (4, 101)]
    await asyncio.sleep(0)
    assert bench.oracle.counts == []


async def test_a_frame_without_commits_asks_for_nothing_early(bench: Bench) -> None:
    bench.frame(AskOutcome(TransactionId(1)))
    await asyncio.sleep(0)
    assert bench.oracle.counts == []


async def test_a_question_after_the_frame_gets_its_timestamp_from_a_later_request(
    bench: Bench,
) -> None:
    """Its locks were taken after the early question was sent, and others may have read between."""
    bench.frame(commit(1), commit(2), commit(4))  # 1 is refused: a timestamp is left over
    bench.runtime.handle((bench, 1), AskOutcome(TransactionId(6)))
    await asyncio.sleep(0)
    assert bench.oracle.counts == [3]
    bench.oracle.answer(100)
    assert bench.core.got == [(2, 100), (4, 101)]
    assert bench.oracle.counts == [1]
    bench.oracle.answer(200)
    assert bench.core.got[2:] == [(6, 200)]


@pytest.mark.parametrize("is_early", [True, False])
async def test_an_oracle_that_goes_back_is_not_believed(bench: Bench, is_early: bool) -> None:
    def ask(number: int) -> None:
        if is_early:
            bench.frame(commit(number))
        else:
            bench.runtime.handle((bench, 1), AskOutcome(TransactionId(number)))

    for number, first in ((2, 100), (4, 100), (6, 101)):
        ask(number)
        await asyncio.sleep(0)
        bench.oracle.answer(first)
    assert bench.core.got == [(2, 100), (6, 101)]


async def test_a_second_frame_does_not_share_the_request_of_the_first_frame(bench: Bench) -> None:
    bench.frame(commit(2))
    bench.frame(commit(4), commit(6))
    assert bench.oracle.counts == [1]
    bench.oracle.answer(100)
    assert bench.oracle.counts == [2]
    bench.oracle.answer(200)
    assert bench.core.got == [(2, 100), (4, 200), (6, 201)]


async def test_timestamps_are_requested_again_if_the_early_request_fails_immediately(
    bench: Bench,
) -> None:
    bench.oracle.is_away = True
    bench.frame(commit(2))
    bench.oracle.is_away = False
    await asyncio.sleep(0)
    assert bench.oracle.counts == [1]
    bench.oracle.answer(100)
    assert bench.core.got == [(2, 100)]


async def test_the_links_do_not_retry_an_early_request_that_fails_later(bench: Bench) -> None:
    bench.frame(commit(2))
    bench.oracle.questions.pop()[1](AWAY)
    assert bench.core.got == []
    bench.frame(commit(4))
    bench.oracle.answer(300)
    assert bench.core.got == [(4, 300)]


async def test_a_repeated_reason_of_missing_timestamps_is_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A cell asks several times a second. Timestamps in between make the reason news again."""
    caplog.set_level(logging.WARNING, "dodona.links")
    other = Failure("overloaded", "b")
    replies: list[Failure | int] = [AWAY, AWAY, other, AWAY, 100, AWAY, 200]
    for number, reply in enumerate(replies):
        bench.frame(commit(2 * number + 2))
        if isinstance(reply, int):
            bench.oracle.answer(reply)
        else:
            bench.oracle.questions.pop()[1](reply)
    told = [AWAY, other, AWAY, AWAY]
    assert events(caplog) == [("no_timestamps", it.message) for it in told]


# ---- heartbeats that are not taken

BEAT = Heartbeat(CellId(0), "127.0.0.1:2", (), 1)


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    fields: list[Any] = [it.__dict__["fields"] for it in caplog.records]
    return [(it["event"], it["reason"]) for it in fields]


async def test_a_repeated_reason_of_failed_heartbeats_is_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """There are several in a second. Another reason is news."""
    caplog.set_level(logging.WARNING, "dodona.links")
    for reason in ["a", "a", None, None, "a", "b", "b"]:
        refused = None if reason is None else Failure("unauthenticated", reason)
        bench.oracle.beats.append(refused or AWAY)
        await bench.links._beat(BEAT)
    refusals = [("heartbeat_refused", reason) for reason in "aab"]
    assert events(caplog) == [refusals[0], ("no_heartbeat", AWAY.message), *refusals[1:]]
