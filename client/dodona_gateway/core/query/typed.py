"""Expressions whose columns are known, on their way to SQL. Pure.

Owns: what is known of an expression before it becomes SQL, the way it becomes it, and the bound on
what comes out. Its kind is decided last, by what stands around it: so SQL is made by a function
of the kind. It is also a function of where it stands: a *condition* only has to be true for the
right rows (null is as good as false), a *value* has to be right altogether.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from dodona_gateway.core.query.values import Constant, Kind
from dodona_wire.errors import LimitExceeded

SQL_LENGTH_MAX: Final = 1 << 20
"""What the engine takes."""


@dataclass(frozen=True, slots=True)
class Mode:
    """Where an expression stands."""

    is_condition: bool = False
    not_null: frozenset[str] = frozenset()
    """Columns, as SQL, that are null in no row that counts: what stands beside sees to it."""

    def value(self) -> "Mode":
        """Inside of it, where null and false are two."""
        return replace(self, is_condition=False)

    def without(self, columns: Iterable[str]) -> "Mode":
        """Where these columns are never null."""
        return replace(self, not_null=self.not_null.union(columns))


VALUE: Final = Mode()
CONDITION: Final = Mode(is_condition=True)
Make = Callable[[Kind, Mode], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One value per row."""

    kinds: Kind
    """What it may be."""
    make: Make
    """SQL for one of those kinds."""
    at: int
    """Where it begins in the query's text."""
    is_nullable: bool = True
    constant: Constant | None = None
    column: str | None = None
    """The SQL of the column that it is."""
    text: str | None = None
    """SQL of the same string as VARCHAR, where it is known to be text."""
    proves: tuple[str, ...] = ()
    """Columns that are not null where it is true."""

    def is_null_in(self, mode: Mode) -> bool:
        """Whether it may be null there."""
        return self.is_nullable and self.column not in mode.not_null


def bounded(sql: str) -> str:
    """The same. Some operators repeat their operands: over one another, this stops them. Raises
    LimitExceeded."""
    if len(sql) > SQL_LENGTH_MAX:
        raise LimitExceeded(
            f"the query becomes more than {SQL_LENGTH_MAX} characters of SQL: make it simpler",
            sql_length_max=SQL_LENGTH_MAX,
        )
    return sql
