"""Decide the kinds of a function's arguments, as YTsaurus does. Pure.

Owns: the description of a function (`Function`), and how a call is built. Arguments that share a
kind, such as both branches of `if`, must agree. A literal takes the kind of the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dodona_wire.errors import InvalidRequest
from dodona_wire.expressions.source import Source
from dodona_wire.expressions.values import EVERYTHING, Kind, first_of, names_of
from dodona_ytsaurus.query.typed import Expression, Mode, bounded

Nulls = Literal["any", "all", "never", "may be"]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call, as SQL of its kind."""

    sql: str
    kind: Kind
    expression: Expression
    error: Callable[[str], InvalidRequest]
    """Makes an error about this argument, with a message."""

    @property
    def constant(self) -> Any:
        """Return the value of a literal, otherwise None."""
        return self.expression.constant.value if self.expression.constant else None

    @property
    def text(self) -> str:
        """Return the string as VARCHAR. The SQL gives null where the string is no text."""
        return self.expression.text or f"try(decode({self.sql}))"


Render = Callable[[Sequence[Argument]], str]


@dataclass(frozen=True, slots=True)
class Function:
    """A function, or an aggregate, and the SQL that computes it."""

    arguments: tuple[Kind, ...]
    """The kinds that each argument may have."""
    result: Kind | None
    """The kind of the result. None means the kind that the arguments share."""
    render: Render
    shared: tuple[int, ...] = ()
    """The places of the arguments that must have one kind."""
    is_repeated: bool = False
    """Whether the last argument may come any number of times."""
    nulls: Nulls = "any"
    """When the result is null: if any argument is, only if all are, never, or in any case maybe."""

    def place(self, index: int) -> int:
        """Return the place of an argument in `arguments`. Repeated ones share the last place."""
        return min(index, len(self.arguments) - 1)


def function(
    arguments: Sequence[Kind], result: Kind, template: str, nulls: Nulls = "any"
) -> Function:
    """Return a function whose SQL is a template with {0}, {1}, ... for the arguments."""

    def render(given: Sequence[Argument]) -> str:
        return template.format(*[it.sql for it in given])

    return Function(tuple(arguments), result, render, nulls=nulls)


def call(
    source: Source, name: str, called: Function, given: Sequence[Expression], at: int
) -> Expression:
    """Build a call as an expression. Raises InvalidRequest if the arguments do not fit."""
    allowed = _allowed(source, name, called, given, at)
    common = EVERYTHING
    for index in range(len(given)):
        if called.place(index) in called.shared:
            common &= allowed[index]
    if not common:
        kinds = " and ".join([names_of(it.kinds) for it in given])
        text = f"The arguments of {name} must have one type, not {kinds}. Convert some of them."
        raise source.error(at, text)

    def make(kind: Kind, mode: Mode) -> str:
        shared = first_of(common) if called.result else kind
        arguments = []
        for index, it in enumerate(given):
            is_shared = called.place(index) in called.shared
            its = shared if is_shared else first_of(allowed[index])
            complain = _complaint(source, name, it)
            arguments.append(Argument(it.make(its, mode.value()), its, it, complain))
        return bounded(called.render(arguments))

    return Expression(
        kinds=called.result or common,
        make=make,
        at=at,
        is_nullable=_is_nullable(called.nulls, given),
    )


def _complaint(source: Source, name: str, it: Expression) -> Callable[[str], InvalidRequest]:
    return lambda message: source.error(it.at, f"{name}: {message}", function=name)


def _allowed(
    source: Source, name: str, called: Function, given: Sequence[Expression], at: int
) -> list[Kind]:
    least = len(called.arguments)
    if len(given) < least or (len(given) > least and not called.is_repeated):
        count = f"{least} or more" if called.is_repeated else str(least)
        noun = "argument" if count == "1" else "arguments"
        text = f"{name} takes {count} {noun}, not {len(given)}."
        raise source.error(at, text, function=name)
    allowed = []
    for index, it in enumerate(given):
        wanted = called.arguments[called.place(index)]
        if not wanted & it.kinds:
            text = f"Argument {index + 1} of {name} must be {names_of(wanted)}"
            raise source.error(it.at, f"{text}, not {names_of(it.kinds)}.", function=name)
        allowed.append(wanted & it.kinds)
    return allowed


def _is_nullable(nulls: Nulls, given: Sequence[Expression]) -> bool:
    match nulls:
        case "any":
            return any(it.is_nullable for it in given)
        case "all":
            return all(it.is_nullable for it in given)
    return nulls == "may be"
