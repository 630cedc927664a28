"""Check the oracle's promises to callers: timestamps are unique, and monotonic in real time.

Owns: the checks UNIQUE, MONOTONIC, ORDER and SESSION. Every timestamp counts that a caller saw, be
it a start, a commit or one that a server used up inside. The name of a blind write must be unique
and below its commit. The time of its request does not count, because it was asked for in advance.

The work is linear, except for sorting.
Must not import: any core.
"""

from collections.abc import Iterable

from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import Acquisition, Transaction

NEVER_US = 1 << 62
"""The instant of an answer that never came."""

Committed = list[tuple[Transaction, int]]
"""Every transaction that took effect, with its commit timestamp."""


def check_timestamps(
    transactions: Iterable[Transaction], committed: Committed, acquisitions: Iterable[Acquisition]
) -> list[Violation]:
    transactions = list(transactions)
    begun = [t for t in transactions if t.is_fresh and t.begun_us is not None]
    acquisitions = list(acquisitions)
    starts, acquired = _starts(begun), [t for t in begun if not t.is_start_of_cell]
    return [
        *_check_ranges(_starts(acquired) + _names(transactions) + acquisitions),
        *_check_unique(begun, transactions, committed),
        *_check_monotonic(starts + _commits(committed) + acquisitions),
        *_check_order(committed),
        *_check_sessions(transactions),
    ]


def _starts(transactions: list[Transaction]) -> list[Acquisition]:
    return [
        Acquisition(t.name, t.begin_us, t.begun_us, t.start, t.start)
        for t in transactions
        if t.begun_us is not None
    ]


def _names(transactions: list[Transaction]) -> list[Acquisition]:
    return [
        Acquisition(f"{t.name} as its name", t.begin_us, NEVER_US, name, name)
        for t in transactions
        for name in t.aliases
    ]


def _commits(committed: Committed) -> list[Acquisition]:
    """Return commits as acquisitions: received when the caller got its answer, if ever.

    They are not ranges of their own: a commit timestamp is one that a server acquired.
    """
    seen = []
    for t, commit in committed:
        if t.commit_us is not None:
            end_us = t.end_us if t.status == "ok" else None
            end_us = NEVER_US if end_us is None else end_us
            seen.append(Acquisition(t.name, t.commit_us, end_us, commit, commit))
    return seen


def _check_ranges(acquisitions: list[Acquisition]) -> list[Violation]:
    violations = []
    highest: Acquisition | None = None
    for a in sorted(acquisitions, key=lambda a: a.first):
        if highest is not None and a.first <= highest.last:
            text = f"{a.source} and {highest.source} both got timestamp {a.first}"
            violations.append(Violation("UNIQUE", text))
        if highest is None or a.last > highest.last:
            highest = a
    return violations


def _check_unique(
    begun: list[Transaction], named: list[Transaction], committed: Committed
) -> list[Violation]:
    violations = []
    owners: dict[int, str] = {}
    points = [(t.start, f"the start of {t.name}") for t in begun]
    points += [(name, f"a name of {t.name}") for t in named for name in t.aliases]
    points += [(commit, f"the commit of {t.name}") for t, commit in committed]
    for timestamp, owner in points:
        other = owners.setdefault(timestamp, owner)
        if other is not owner:
            violations.append(Violation("UNIQUE", f"{timestamp} is {other} and {owner}"))
    return violations


def _check_monotonic(seen: list[Acquisition]) -> list[Violation]:
    """Check that no caller gets a timestamp at or below one that was known before its request."""
    violations = []
    received = sorted(seen, key=lambda a: a.received_us)
    position = 0
    highest: Acquisition | None = None
    for a in sorted(seen, key=lambda a: a.asked_us):
        while position < len(received) and received[position].received_us < a.asked_us:
            if highest is None or received[position].last > highest.last:
                highest = received[position]
            position += 1
        if highest is not None and a.first <= highest.last:
            violations.append(
                Violation(
                    "MONOTONIC",
                    f"{a.source} asked at {a.asked_us} µs and got {a.first}, but {highest.source} "
                    f"had {highest.last} at {highest.received_us} µs",
                )
            )
    return violations


def _check_order(committed: Committed) -> list[Violation]:
    """Check that commits lie above starts. The names of a blind write were issued before, too."""
    return [
        Violation("ORDER", f"{t.name} started at {floor} and committed at {commit}")
        for t, commit in committed
        if commit <= (floor := max(t.names, default=0) if t.is_blind else t.written_from)
    ]


def _check_sessions(transactions: list[Transaction]) -> list[Violation]:
    """Check each session's order. A blind transaction starts where it commits, if known."""
    violations = []
    last: dict[str, Transaction] = {}
    for t in transactions:
        start = t.commit if t.is_blind else t.start
        if start is None or not t.is_fresh or (t.begun_us is None and not t.is_blind):
            continue
        before = last.get(t.session)
        if before is not None and before.commit is not None and start <= before.commit:
            violations.append(
                Violation(
                    "SESSION",
                    f"{t.name} started at {start}, below its session's commit "
                    f"{before.commit} ({before.name})",
                )
            )
        if t.commit is not None:
            last[t.session] = t
    return violations
