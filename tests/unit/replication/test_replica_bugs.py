"""Each rule of a replica, planted as a bug: histories of owners show it.

A bug is a change of the core for as long as the histories run. The rules are those of the
replication protocol.
"""

from collections.abc import Callable
from typing import Any

import pytest

from dodona_replication.core import replica
from dodona_replication.core.records import (
    EntriesAdded,
    EntriesDropped,
    EpochRaised,
    LogBegun,
    LogCut,
    LogState,
    Record,
)
from dodona_replication.core.replica import ReplicaCore
from dodona_replication.core.tail import Tail
from dodona_wire.cores.effects import Append, ReplyAtOnce, ReplyTo
from dodona_wire.messages.replicas import (
    AlignLog,
    BeginLog,
    EntriesStored,
    LogAligned,
    LogFenced,
    LogRequest,
    StoreEntries,
)
from suite.levels import examples
from unit.replication.owners import History, run_histories

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS_MAX = 60


def answer_at_once(kind: type[Any]) -> Plant:
    """Answers of this kind do not wait for the records before them."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        take = ReplicaCore.take_effects

        def planted(self: ReplicaCore) -> list[Any]:
            return [
                ReplyAtOnce(it.route, it.body)
                if isinstance(it, ReplyTo) and isinstance(it.body, kind)
                else it
                for it in take(self)
            ]

        patch.setattr(ReplicaCore, "take_effects", planted)

    return plant


def serve_old_owners(patch: pytest.MonkeyPatch) -> None:
    reply = ReplicaCore._reply

    def planted(self: ReplicaCore, route: Any, body: LogRequest, now: Any) -> Any:
        log = self._logs.get(body.log)
        if isinstance(body, StoreEntries) and log is not None and body.epoch < log.epoch:
            return self._store(route, body, log, now)
        return reply(self, route, body, now)

    patch.setattr(ReplicaCore, "_reply", planted)


def keep_no_epoch(patch: pytest.MonkeyPatch) -> None:
    """A fence holds only until the next start."""
    take = ReplicaCore.take_effects

    def planted(self: ReplicaCore) -> list[Any]:
        effects = take(self)
        for effect in effects:
            if isinstance(effect, ReplyTo) and isinstance(effect.body, LogFenced):
                return [it for it in effects if not isinstance(it, Append)]
        return effects

    patch.setattr(ReplicaCore, "take_effects", planted)


def look_at_the_index_only(patch: pytest.MonkeyPatch) -> None:
    """The entry before may have another epoch."""
    store = ReplicaCore._store

    def planted(self: ReplicaCore, route: Any, body: StoreEntries, log: LogState, now: Any) -> Any:
        known = log.tail.epoch_at(body.previous_index)
        if known is not None and known <= body.previous_epoch:
            tail = log.tail
            new = tuple([it for it in body.entries if it.index > tail.last_index])
            if new:
                self._change(log, EntriesAdded(body.log, new))
            return EntriesStored(body.previous_index + len(body.entries))
        return store(self, route, body, log, now)

    patch.setattr(ReplicaCore, "_store", planted)


def drop_the_owners_own_entries(patch: pytest.MonkeyPatch) -> None:
    def planted(self: ReplicaCore, route: Any, body: AlignLog, log: LogState, now: Any) -> Any:
        tail = log.tail
        if body.index and not tail.has(body.index, body.entry_epoch):
            return replica._misaligned(log)
        if tail.first_index - 1 <= body.index < tail.last_index:
            self._change(log, EntriesDropped(body.log, body.index))
        return LogAligned(tail.last_index)

    patch.setattr(ReplicaCore, "_align", planted)


def cut_without_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """All that is before the checkpoint goes, also if the checkpoint is not there."""
    store = ReplicaCore._store

    def planted(self: ReplicaCore, route: Any, body: StoreEntries, log: LogState, now: Any) -> Any:
        answer = store(self, route, body, log, now)
        if len(log.tail) and body.cut_index > log.tail.last_index:
            self._change(log, LogCut(body.log, log.tail.last_index))
        return answer

    patch.setattr(ReplicaCore, "_store", planted)


def cut_at_another_entry(patch: pytest.MonkeyPatch) -> None:
    """The entry at the checkpoint's index may have another epoch."""
    has = Tail.has

    def planted(self: Tail, index: int, epoch: int) -> bool:
        return self.first_index <= index <= self.last_index or has(self, index, epoch)

    patch.setattr(Tail, "has", planted)


def begin_again_and_again(patch: pytest.MonkeyPatch) -> None:
    def planted(self: ReplicaCore, _: Any, body: BeginLog, log: LogState, __: Any) -> Any:
        self._change(log, LogBegun(body.log, body.previous_epoch, body.entries))
        return EntriesStored(body.entries[-1].index)

    patch.setattr(ReplicaCore, "_begin", planted)


def begin_behind_a_gap(patch: pytest.MonkeyPatch) -> None:
    """A learner behind the cut takes the entries, and keeps what it has."""
    apply = LogState.apply

    def planted(self: LogState, record: Any) -> None:
        before = self.tail
        apply(self, record)
        if isinstance(record, LogBegun) and len(before):
            self.tail.first_index, self.tail.epoch_before = before.first_index, before.epoch_before
            older = [it for it in before.starts if it[0] < self.tail.starts[0][0]]
            self.tail.starts = older + self.tail.starts

    patch.setattr(LogState, "apply", planted)


BUGS: list[tuple[str, Plant]] = [
    ("R4: an old owner is served", serve_old_owners),
    ("R4: a fence is answered before it is durable", answer_at_once(LogFenced)),
    ("R4: an epoch is not durable", keep_no_epoch),
    ("R7: entries are acknowledged before they are durable", answer_at_once(EntriesStored)),
    ("R9: only the index of the entry before counts", look_at_the_index_only),
    ("R10: a late alignment drops entries of its own epoch", drop_the_owners_own_entries),
    ("R24: a log is cut although the checkpoint is missing", cut_without_the_checkpoint),
    ("R24: another entry passes for the one that is named", cut_at_another_entry),
    ("R25: a late begin drops what came later", begin_again_and_again),
    ("R25: a learner behind the cut keeps a gap", begin_behind_a_gap),
]


@pytest.mark.parametrize(("title", "plant"), BUGS, ids=[title for title, _ in BUGS])
def test_histories_show_a_planted_bug(
    title: str, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            History(seed).run(250)
        except AssertionError:
            return
    raise AssertionError(f"{SEEDS_MAX} histories do not show: {title}")


def test_histories_show_nothing_without_a_bug() -> None:
    run_histories(range(examples(200)))


def test_histories_reach_what_the_rules_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that never cuts, begins anew or aligns shows no bug."""
    seen: set[type[Any]] = set()
    change = ReplicaCore._change

    def noting(self: ReplicaCore, log: LogState, record: Record) -> None:
        seen.add(type(record))
        change(self, log, record)

    monkeypatch.setattr(ReplicaCore, "_change", noting)
    run_histories(range(20))
    assert seen == {EpochRaised, EntriesAdded, EntriesDropped, LogBegun, LogCut}
