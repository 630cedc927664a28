"""Snapshot isolation by definition: small histories, and every order in which they may have run.

Owns: `is_possible`, which runs a history's transactions against plain lists in every order of their
starts and commits until everybody sees what the history says, and `draw_history`, small histories
of a database that is right or wrong by a seed. It shares nothing with the checker but its records.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from random import Random
from typing import Final

from dodona_loadtest.checkers.appends import Append, AppendTransaction, Observe
from dodona_loadtest.checkers.list_append_cycles import Order
from dodona_loadtest.histories.history import Status

KEYS: Final = ("x", "y")
Elements = tuple[Hashable, ...]
Lists = dict[Hashable, Elements]


def is_possible(
    transactions: Sequence[AppendTransaction], order: Order, *, is_serializable: bool
) -> bool:
    """Whether some order explains all that was seen. The unsure may have committed or not."""
    fates = [{"ok": (True,), "fail": (False,)}.get(t.status, (True, False)) for t in transactions]
    return any(
        _Search(transactions, order, fate, is_serializable=is_serializable).runs()
        for fate in product(*fates)
    )


class _Search:
    def __init__(
        self,
        transactions: Sequence[AppendTransaction],
        order: Order,
        commits: Sequence[bool],
        *,
        is_serializable: bool,
    ) -> None:
        self._transactions = transactions
        self._order = order
        self._commits = [
            does and any(isinstance(it, Append) for it in t.operations)
            for t, does in zip(transactions, commits, strict=True)
        ]
        self._is_serializable = is_serializable
        everybody = range(len(transactions))
        self._before = [[j for j in everybody if self._is_before(j, i)] for i in everybody]

    def _is_before(self, j: int, i: int) -> bool:
        """Whether the caller of j was done with it before i was begun."""
        earlier, later = self._transactions[j], self._transactions[i]
        if self._order == "none" or i == j:
            return False
        if earlier.session == later.session and (earlier.begin_us, j) < (later.begin_us, i):
            return True
        is_past = earlier.end_us is not None and earlier.end_us < later.begin_us
        return self._order == "real time" and is_past

    def runs(self) -> bool:
        return self._goes_on(dict.fromkeys(KEYS, ()), {}, frozenset())

    def _goes_on(self, lists: Lists, started: dict[int, Lists], done: frozenset[int]) -> bool:
        """`started` has what each transaction saw; `done` those with nothing left to do."""
        if len(done) == len(self._transactions):
            return True
        for number in range(len(self._transactions)):
            if number not in started:
                if self._may_start(number, lists, started, done) and self._starts(
                    number, lists, started, done
                ):
                    return True
            elif number not in done and self._commit(number, lists, started, done):
                return True
        return False

    def _may_start(
        self, number: int, lists: Lists, started: dict[int, Lists], done: frozenset[int]
    ) -> bool:
        for other in self._before[number]:
            if self._transactions[other].status in ("ok", "fail"):
                if other not in done:
                    return False
            elif not self._is_serializable and other not in started:
                return False
        reads = (it for it in self._transactions[number].operations if isinstance(it, Observe))
        return all(lists[read.key] == read.elements for read in reads)

    def _starts(
        self, number: int, lists: Lists, started: dict[int, Lists], done: frozenset[int]
    ) -> bool:
        started = started | {number: lists}
        if not self._commits[number]:
            return self._goes_on(lists, started, done | {number})
        if self._is_serializable:
            return self._commit(number, lists, started, done)
        return self._goes_on(lists, started, done)

    def _commit(
        self, number: int, lists: Lists, started: dict[int, Lists], done: frozenset[int]
    ) -> bool:
        after = dict(lists)
        for it in self._transactions[number].operations:
            if isinstance(it, Append):
                if lists[it.key] != started[number][it.key]:
                    return False
                after[it.key] = (*after[it.key], it.element)
        return self._goes_on(after, started, done | {number})


# Small histories


@dataclass(slots=True)
class _Draft:
    """A transaction that is being made up. It exists from its first to its last moment."""

    status: Status
    observes: list[str]
    appends: dict[str, list[int]]
    moments: list[int] = field(default_factory=list)
    seen: Lists = field(default_factory=dict)


def draw_history(
    random: Random, *, is_serial: bool = False, is_blind: bool = False
) -> list[AppendTransaction]:
    """Two to four transactions. `is_blind`: some do not observe what they append to."""
    drafts = _drafts(random, is_blind=is_blind)
    turns = [draft for draft in drafts for _ in range(1 if is_serial else 2)]
    random.shuffle(turns)
    if is_serial or random.random() < 0.5:
        _run(random, turns, flaw_rate=0 if is_serial else random.choice((0, 0.1, 0.3)))
    else:
        _make_up(random, drafts, turns)
    return _written_down(random, drafts)


def _drafts(random: Random, *, is_blind: bool) -> list[_Draft]:
    drafts, elements = [], count(1)
    blind_rate = 0.6 if is_blind else 0
    for _ in range(random.choice((2, 3, 4, 4, 4))):
        is_reader = random.random() < 0.3
        keys = random.sample(KEYS, len(KEYS) if is_reader else random.randint(1, len(KEYS)))
        appends = {
            key: [next(elements) for _ in range(random.choice((1, 1, 1, 2)))]
            for key in keys
            if not is_reader and random.random() < 0.7
        }
        observes = [key for key in keys if key not in appends or random.random() > blind_rate]
        statuses: list[Status] = ["ok", "ok", "ok", "ok", "ok", "fail", "info", "open"]
        drafts.append(_Draft(random.choice(statuses), observes, appends))
    return drafts


def _run(random: Random, turns: list[_Draft], flaw_rate: float) -> None:
    """As a database does it that goes wrong now and then. With one turn each, serially."""
    past: dict[str, list[Elements]] = {key: [()] for key in KEYS}

    def goes_wrong() -> bool:
        return random.random() < flaw_rate

    for moment, draft in enumerate(turns):
        if not draft.moments:
            for key, states in past.items():
                draft.seen[key] = random.choice(states) if goes_wrong() else states[-1]
        draft.moments.append(moment)
        if len(draft.moments) < turns.count(draft):
            continue
        is_undone = draft.status == "fail" or (draft.status != "ok" and random.random() < 0.5)
        is_late = any(draft.seen[key] != past[key][-1] for key in draft.appends)
        if is_late and draft.status == "ok" and not goes_wrong():
            draft.status = "fail"
        if (is_undone or is_late) and not goes_wrong():
            continue
        for key, elements in draft.appends.items():
            if not goes_wrong():
                base = draft.seen[key] if goes_wrong() else past[key][-1]
                past[key].append((*base, *elements))


def _make_up(random: Random, drafts: list[_Draft], turns: list[_Draft]) -> None:
    """As no database does it: a list in any order, and everybody sees some beginning of it."""
    for moment, draft in enumerate(turns):
        draft.moments.append(moment)
    for key in KEYS:
        writers = [draft for draft in drafts if key in draft.appends]
        random.shuffle(writers)
        runs = [it.appends[key] for it in writers if it.status != "fail" or random.random() < 0.1]
        for draft in drafts:
            usable = runs.index(draft.appends[key]) if draft.appends.get(key) in runs else len(runs)
            length = usable if random.random() < 0.7 else random.randint(0, usable)
            draft.seen[key] = tuple(element for run in runs[:length] for element in run)
            if len(draft.seen[key]) > 1 and random.random() < 0.05:
                draft.seen[key] = draft.seen[key][:-1]


def _written_down(random: Random, drafts: list[_Draft]) -> list[AppendTransaction]:
    slack = random.choice((1, 1, 15, 40))
    ends: dict[str, int] = {}
    history = []
    for number, draft in enumerate(sorted(drafts, key=lambda draft: draft.moments[0])):
        begin_us = 10 * draft.moments[0] - random.randrange(slack)
        end_us = 10 * draft.moments[-1] + random.randrange(slack)
        free = [session for session in "ab" if ends.get(session, begin_us) <= begin_us]
        session = random.choice(free) if free else f"s{number}"
        ends[session] = end_us
        observes = [Observe(key, draft.seen[key]) for key in draft.observes]
        appends = [Append(key, it) for key, elements in draft.appends.items() for it in elements]
        again = [it for it in observes if random.random() < 0.1]
        told_us = None if draft.status == "open" else end_us
        history.append(
            AppendTransaction(
                f"{session}#{number}",
                session,
                draft.status,
                begin_us,
                told_us,
                (*observes, *appends, *again),
            )
        )
    random.shuffle(history)
    return history
