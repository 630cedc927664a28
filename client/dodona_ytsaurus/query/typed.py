"""Expressions whose columns are known, before they become SQL. Pure.

Owns: the facts about an expression before it becomes SQL, how it becomes SQL, and the limit on its
length. The kind of an expression is decided last, by its neighbours, so a function of the kind
makes the SQL. The place of the expression is its other argument. A *condition* only has to be true
for the right rows (null is as good as false). A *value* must be exactly right.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from dodona_wire.errors import LimitExceeded
from dodona_wire.expressions.values import Constant, Kind

SQL_LENGTH_MAX: Final = 1 << 20
"""The longest SQL that the engine takes."""


@dataclass(frozen=True, slots=True)
class Mode:
    """The place where an expression stands."""

    is_condition: bool = False
    not_null: frozenset[str] = frozenset()
    """Columns, as SQL, that are null in no row that counts, because of a condition beside them."""

    def value(self) -> "Mode":
        """Return the mode inside the expression, where null and false are different."""
        return replace(self, is_condition=False)

    def without(self, columns: Iterable[str]) -> "Mode":
        """Return the mode in which these columns are never null."""
        return replace(self, not_null=self.not_null.union(columns))


VALUE: Final = Mode()
CONDITION: Final = Mode(is_condition=True)
Make = Callable[[Kind, Mode], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One value per row."""

    kinds: Kind
    """The kinds that it may have."""
    make: Make
    """Makes the SQL for one of those kinds."""
    at: int
    """The place in the query's text where it begins."""
    is_nullable: bool = True
    constant: Constant | None = None
    column: str | None = None
    """The SQL of the column, if the expression is a column."""
    text: str | None = None
    """The SQL of the same string as VARCHAR, if it is known to be text."""
    proves: tuple[str, ...] = ()
    """The columns that are not null where the expression is true."""

    def is_null_in(self, mode: Mode) -> bool:
        """Return whether the expression may be null in this mode."""
        return self.is_nullable and self.column not in mode.not_null


def bounded(sql: str) -> str:
    """Return the SQL unchanged. Some operators repeat their operands, and nested ones could become
    too long. Raises LimitExceeded."""
    if len(sql) > SQL_LENGTH_MAX:
        raise LimitExceeded(
            f"The query becomes more than {SQL_LENGTH_MAX} characters of SQL. Make it simpler.",
            sql_length_max=SQL_LENGTH_MAX,
        )
    return sql
