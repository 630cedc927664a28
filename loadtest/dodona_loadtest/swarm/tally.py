"""Count operations, their latencies and their refusals, and judge them by limits. Pure.

Owns: the figures of a test and their judgement by the limits in its options. The checkers judge
what operations read or wrote. Four bytes are kept of every operation, so the number of records in
the history bounds them.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dodona_wire.errors import TransactionConflict

SHARES: Final = {"p50-ms-max": 0.5, "p99-ms-max": 0.99}
LATENCY_US_MAX: Final = (1 << 32) - 1
ASKED_MIN: Final = 20
"""Fewer operations that were all refused prove nothing: they may have hindered each other."""
COLUMNS: Final = ("operation", "acknowledged", "a second", "p50 ms", "p99 ms", "refused")


@dataclass(slots=True)
class Operation:
    """All operations of one name."""

    latencies_us: "array[int]" = field(default_factory=lambda: array("I"))
    """Latencies of acknowledged operations."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Refusals by the kind of the error."""

    @property
    def acknowledged(self) -> int:
        return len(self.latencies_us)

    @property
    def refused(self) -> int:
        return sum(self.refusals.values())

    @property
    def is_never_acknowledged(self) -> bool:
        """Whether none was acknowledged, although there were enough. If all of them were conflicts,
        that is no excuse: each conflict has a winner."""
        return not self.latencies_us and self.refused >= ASKED_MIN

    def latency_ms(self, share: float) -> float:
        """Return the latency that this share of the acknowledged operations did not exceed; not a
        number if there is none."""
        ordered = sorted(self.latencies_us)
        if not ordered:
            return math.nan
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] / 1e3


class Limit(NamedTuple):
    """A value that a test may not exceed, or fall below."""

    name: str
    """The name of its option, without hyphens before it."""
    meaning: str
    default: float | None


LIMITS: Final = (
    Limit("p50-ms-max", "the p50 of every operation, in milliseconds", None),
    Limit("p99-ms-max", "the p99 of every operation, in milliseconds", None),
    Limit("rate-min", "acknowledged operations a second, of all names together", None),
    Limit(
        "failure-ratio-max",
        "share of operations that were refused or stayed unsure, conflicts not counted",
        0.01,
    ),
    Limit("conflict-ratio-max", "share of operations that lost to another transaction", None),
)


class Judgement(NamedTuple):
    """One limit, and whether the test kept it."""

    text: str
    is_kept: bool

    def __str__(self) -> str:
        return f"{self.text}: {'kept' if self.is_kept else 'BROKEN'}"


class Tally:
    """The operations of one test, by name in the order in which they came."""

    def __init__(self) -> None:
        self.operations: dict[str, Operation] = {}

    def note(self, name: str, latency_us: int, refusal: str | None) -> None:
        """Count an operation. `refusal` is the kind of its error, None if it was acknowledged."""
        operation = self.operations.setdefault(name, Operation())
        if refusal is None:
            operation.latencies_us.append(min(max(0, latency_us), LATENCY_US_MAX))
        else:
            operation.refusals[refusal] = operation.refusals.get(refusal, 0) + 1

    @property
    def acknowledged(self) -> int:
        return sum(it.acknowledged for it in self.operations.values())

    def lines(self, seconds: float) -> list[str]:
        """Return a table in Markdown, for a reader."""
        rows = [list(COLUMNS), ["---", *["---:"] * 4, "---"]]
        rows += [_cells(name, it, seconds) for name, it in sorted(self.operations.items())]
        return [f"| {' | '.join(row)} |" for row in rows]

    def judge(self, limits: dict[str, float | None], seconds: float) -> list[Judgement]:
        """Judge the operations. First come those that were never acknowledged, with any limits.
        Then comes each limit that is set, by its name, for latencies with each operation."""
        found = [
            Judgement(f"{name}: none of {it.refused:,} was acknowledged", False)
            for name, it in sorted(self.operations.items())
            if it.is_never_acknowledged
        ]
        for name, limit in limits.items():
            if limit is not None:
                found += [
                    Judgement(f"{text}, limit {limit:g}", _keeps(name, value, limit))
                    for text, value in self._values(name, seconds)
                ]
        return found

    def _values(self, limit: str, seconds: float) -> Iterator[tuple[str, float]]:
        if limit in SHARES:
            for name, operation in sorted(self.operations.items()):
                if operation.acknowledged:
                    value = operation.latency_ms(SHARES[limit])
                    yield f"{name}: {limit[:3]} {value:.1f} ms", value
                elif operation.is_never_acknowledged:
                    yield f"{name}: {limit[:3]} of nothing", math.inf
        elif limit == "rate-min":
            rate = self.acknowledged / seconds if seconds else 0.0
            yield f"{rate:.0f} operations a second", rate
        elif limit == "conflict-ratio-max":
            yield self._share("conflicts", [TransactionConflict.kind])
        else:
            kinds = [kind for it in self.operations.values() for kind in it.refusals]
            others = [kind for kind in kinds if kind != TransactionConflict.kind]
            yield self._share("failures", list(dict.fromkeys(others)))

    def _share(self, name: str, kinds: Sequence[str]) -> tuple[str, float]:
        every = self.operations.values()
        refused = sum(it.refusals.get(kind, 0) for it in every for kind in kinds)
        total = sum(it.acknowledged + it.refused for it in every)
        share = refused / total if total else 0.0
        return f"{name} {share:.2%}", share


def _keeps(limit: str, value: float, bound: float) -> bool:
    return value >= bound if limit.endswith("-min") else value <= bound


def _cells(name: str, operation: Operation, seconds: float) -> list[str]:
    rate = operation.acknowledged / seconds if seconds else 0.0
    refusals = (f"{count:,} {kind}" for kind, count in sorted(operation.refusals.items()))
    return [
        name,
        f"{operation.acknowledged:,}",
        f"{rate:,.0f}",
        *(
            f"{operation.latency_ms(share):.1f}" if operation.acknowledged else ""
            for share in (0.5, 0.99)
        ),
        ", ".join(refusals),
    ]
