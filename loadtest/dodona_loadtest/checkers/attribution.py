"""Find the writer of each version in the final dump, and the outcome of every transaction.

Owns: the checks ATOMICITY, DURABILITY and GHOST, and the outcome of transactions whose callers got
no sure answer. Needs unique values: no two transactions write equal columns to a row. Needs a value
in every unsure transaction that has a start, because a deletion does not show its writer. Of blind
ones that only delete, any that fits is taken, because only the instant tells them apart.
Must not import: any core.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dodona_loadtest.checkers.timestamps import Committed
from dodona_loadtest.checkers.violation import Promise, Violation
from dodona_loadtest.histories.history import Columns, RowKey, Transaction, Version, Write


@dataclass(slots=True)
class Attribution:
    """`committed` are all transactions that took effect, with their commit timestamps."""

    committed: Committed = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


def attribute(transactions: Iterable[Transaction], dump: Iterable[Version]) -> Attribution:
    """Match transactions and versions, in both directions."""
    return _Attributor(dump).run(list(transactions))


class _Attributor:
    def __init__(self, dump: Iterable[Version]) -> None:
        self._result = Attribution()
        self._versions: dict[tuple[RowKey, int], Version] = {}
        self._by_value: dict[tuple[RowKey, Columns], list[int]] = {}
        for version in dump:
            if (version.row, version.timestamp) in self._versions:
                self._flag("GHOST", f"{version.row} has two versions at {version.timestamp}")
            self._versions[version.row, version.timestamp] = version
            if version.columns is not None:
                timestamps = self._by_value.setdefault((version.row, version.columns), [])
                timestamps.append(version.timestamp)
        self._owners: dict[tuple[RowKey, int], Transaction] = {}

    def run(self, transactions: list[Transaction]) -> Attribution:
        _demand_tellable(transactions)
        for t in transactions:
            if t.status == "ok":
                self._attribute_acknowledged(t)
        for t in transactions:
            if t.status != "ok" and t.commit_us is not None and t.writes:
                self._resolve(t)
        self._resolve_erasers(transactions)
        for place, version in self._versions.items():
            if place not in self._owners:
                self._flag("GHOST", f"nobody wrote {_show(version)}")
        return self._result

    def _flag(self, promise: Promise, text: str) -> None:
        self._result.violations.append(Violation(promise, text))

    def _attribute_acknowledged(self, t: Transaction) -> None:
        if not t.is_writer:
            return
        assert t.commit is not None, "an acknowledged writer has a commit timestamp"
        self._result.committed.append((t, t.commit))
        missing = self._claim(t, t.commit)
        if not missing:
            return
        is_all = len(missing) == len(t.writes)
        promise: Promise = "DURABILITY" if is_all else "ATOMICITY"
        rows = ", ".join(str(write.row) for write in missing)
        self._flag(promise, f"{t.name} committed at {t.commit}, but there is no version of {rows}")

    def _claim(self, t: Transaction, commit: int) -> list[Write]:
        """Take the transaction's versions at that timestamp. Return its writes without one."""
        missing = []
        for write in t.writes:
            place = (write.row, commit)
            version = self._versions.get(place)
            if version is None or version.columns != write.columns or place in self._owners:
                missing.append(write)
            else:
                self._owners[place] = t
        self._claim_erased(t, commit)
        return missing

    def _claim_erased(self, t: Transaction, commit: int) -> None:
        """Take the deletions in a range that a bulk load erased: only the dump shows them."""
        if not t.erased:
            return
        for place, version in self._versions.items():
            is_gone = place[1] == commit and version.columns is None
            if is_gone and place not in self._owners and any(it.has(place[0]) for it in t.erased):
                self._owners[place] = t
                t.writes.append(Write(place[0], None))

    def _resolve(self, t: Transaction) -> None:
        """Find in the dump the outcome of a transaction that was not acknowledged."""
        commit = self._find_commit(t)
        if commit is None:
            return
        if t.status == "fail":
            self._flag("GHOST", f"{t.name} failed ({t.error}), but its write is there at {commit}")
        self._result.committed.append((t, commit))
        missing = self._claim(t, commit)
        if missing:
            rows = ", ".join(str(write.row) for write in missing)
            self._flag("ATOMICITY", f"{t.name} left a version at {commit}, but none of {rows}")

    def _resolve_erasers(self, transactions: list[Transaction]) -> None:
        """Give each deletion that is left to an unsure transaction that deleted just these rows,
        was sent under lower names, and requires what is there. The first one gets the lowest
        timestamp: if any choice keeps real time, this one does. Its name need not be the lowest: a
        reserve may have kept it."""
        erasers: dict[tuple[RowKey, ...], list[Transaction]] = {}
        for t in sorted(transactions, key=lambda t: (t.commit_us is None, t.commit_us)):
            if _is_unsure(t) and t.is_blind and not _has_value(t):
                rows = tuple(sorted(write.row for write in t.writes))
                erasers.setdefault(rows, []).append(t)
        deleted: dict[int, list[RowKey]] = {}
        for row, timestamp in sorted(self._versions, key=lambda place: place[::-1]):
            place = (row, timestamp)
            if place not in self._owners and self._versions[place].columns is None:
                deleted.setdefault(timestamp, []).append(row)
        for timestamp, found in deleted.items():
            candidates = erasers.get(tuple(found), [])
            sent = (t for t in candidates if t.names and max(t.names) < timestamp)
            fitting = (t for t in sent if self._meets_conditions(t, timestamp))
            eraser = next(fitting, None)
            if eraser is not None:
                candidates.remove(eraser)
                self._result.committed.append((eraser, timestamp))
                self._claim(eraser, timestamp)

    def _meets_conditions(self, t: Transaction, timestamp: int) -> bool:
        """Return whether the rows below a timestamp are as the transaction requires."""
        for row, required in t.conditions:
            state = self._state_below(row, timestamp)
            if (state is None) != (required is None):
                return False
            if any((state or {}).get(name) != value for name, value in required or ()):
                return False
        return True

    def _state_below(self, row: RowKey, timestamp: int) -> dict[str, Any] | None:
        """Return the columns of a row before a version, or None if it is absent."""
        state: dict[str, Any] | None = None
        for at in sorted(at for other, at in self._versions if other == row and at < timestamp):
            columns = self._versions[row, at].columns
            state = None if columns is None else {**(state or {}), **dict(columns)}
        return state

    def _find_commit(self, t: Transaction) -> int | None:
        for write in t.writes:
            if write.columns is not None:
                for timestamp in self._by_value.get((write.row, write.columns), ()):
                    if (write.row, timestamp) not in self._owners:
                        return timestamp
        return None


def _demand_tellable(transactions: list[Transaction]) -> None:
    owners: dict[tuple[RowKey, object], str] = {}
    for t in transactions:
        if _is_unsure(t) and not t.is_blind:
            assert _has_value(t), f"{t.name} only deletes"
        for write in t.writes:
            if write.columns is not None:
                owner = owners.setdefault((write.row, write.columns), t.name)
                assert owner == t.name, f"{owner} and {t.name} write the same to {write.row}"


def _is_unsure(t: Transaction) -> bool:
    return t.status in ("info", "open") and t.commit_us is not None and bool(t.writes)


def _has_value(t: Transaction) -> bool:
    return any(write.columns is not None for write in t.writes)


def _show(version: Version) -> str:
    return f"{version.row} at {version.timestamp}: {version.columns}"
