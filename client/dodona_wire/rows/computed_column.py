"""One computed key column: its expression, checked against the other key columns. Pure.

Owns: which columns may have an expression, what it may use, and the error for a value that differs.
An expression takes stored values, and gives a stored value. So clients and cells compute the same,
and the cells, which know stored types alone, check each write again. `computed_arrow` has whole
columns. `computed` imports this module for the first schema that has such a column.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from dodona_wire.errors import DodonaError, InvalidRequest, LimitExceeded, SchemaViolation
from dodona_wire.expressions.evaluation import SCOPE, code_of, function_of
from dodona_wire.expressions.impossible import impossible_part
from dodona_wire.expressions.source import Source
from dodona_wire.expressions.terms import LENGTH_MAX, Input, Term, term_of
from dodona_wire.expressions.time_floors import FLOORS
from dodona_wire.expressions.values import KIND_OF_TYPE
from dodona_wire.handlers import is_of_handler
from dodona_wire.rows.columns import KEY_COLUMNS_MAX
from dodona_wire.rows.logical_types import DAY_SECONDS, SECOND_US, LogicalType
from dodona_wire.rows.logical_values import shown_stored
from dodona_wire.shown import shown

SCHEMAS_MAX: Final = 1_000
"""Schemas whose computed columns are kept."""
_UNITS: Final = {"date": 1, "seconds": DAY_SECONDS, "microseconds": DAY_SECONDS * SECOND_US}
"""By form of a type of days or moments, how many of its units a day has."""
_INPUTS: Final[dict[str, Callable[[Any], Any]]] = {"utf8": str.encode, "double": (0.0).__add__}
"""By stored type, what an expression takes in place of a value. -0.0 and 0.0 are the same key, so
that both are 0.0 here."""
_PLAIN_FORMS: Final = ("stored", "integer", *_UNITS)


class KeyPart(NamedTuple):
    """What a computed column must know of a key column."""

    name: str
    kind: LogicalType
    expression: str | None
    is_required: bool


class Computed:
    """One computed column. Equal only to itself: equal schemas share it."""

    code_scope: ClassVar[Mapping[str, Any]] = SCOPE
    """The names that `code` uses."""

    def __init__(self, parts: Sequence[KeyPart], place: int) -> None:
        """Compile the expression of the key column at a place. Raises SchemaViolation."""
        part = parts[place]
        self.name: Final = part.name
        self.place: Final = place
        self.text: Final = part.expression or ""
        self.kind: Final = part.kind
        self.term: Final = self._compiled(parts)
        self.inputs: Final = tuple(sorted(_places(self.term)))
        """The places of the key columns that the expression uses."""
        self._is_text = part.kind.stored == "utf8"
        self._texts = tuple([it for it in self.inputs if parts[it].kind.stored == "utf8"])
        kinds = [(it, parts[it].kind.stored) for it in self.inputs]
        self._converted = tuple([(it, _INPUTS[kind]) for it, kind in kinds if kind in _INPUTS])
        self._compute = function_of(self.term)

    def _compiled(self, parts: Sequence[KeyPart]) -> Term:
        if self.kind.form not in _PLAIN_FORMS:
            text = f"a column of type {self.kind.name} can't be computed"
            raise SchemaViolation(text, column=self.name)
        if parts[self.place].is_required:
            text = (
                f"the computed column {self.name!r} can't be required: its expression decides "
                "whether it is null. Leave out `required`"
            )
            raise SchemaViolation(text, column=self.name)
        inputs = {
            it.name: _input(place, it.kind)
            for place, it in enumerate(parts)
            if it.expression is None
        }
        try:
            term, unit = term_of(self.text, inputs, KIND_OF_TYPE[self.kind.stored])
        except (InvalidRequest, LimitExceeded) as error:
            raise self._wrong(error) from error
        wanted = self.kind.name if self.kind.form in _UNITS else ""
        if wanted and unit != wanted:
            text = f"the expression of column {self.name!r} gives no {wanted}"
            hint = "a number" if not unit else f"a {unit}"
            text = f"{text}, but {hint}. Change the type of the column, or the expression"
            raise SchemaViolation(text, column=self.name, expression=shown(self.text))
        return term

    def _wrong(self, error: DodonaError) -> SchemaViolation:
        """Return the error of a schema for an error of the expression."""
        text = f"the expression of column {self.name!r} is wrong: {error.message}"
        given = {**error.attributes, "column": self.name, "expression": shown(self.text)}
        return SchemaViolation(text, **given)

    def check_possible(self) -> None:
        """Check that rows can have the column, for a new schema. Raises SchemaViolation."""
        part = impossible_part(self.term)
        if part is not None:
            text = f"{part.why} No row that needs this part could be written. Change the expression"
            raise self._wrong(Source(self.text, "expression", LENGTH_MAX).error(part.at, text))
        if not self.inputs:
            try:
                self.value_of(())
            except SchemaViolation as error:
                raise self._wrong(error) from error

    @cached_property
    def floor(self) -> tuple[int, Callable[[Any], Any]] | None:
        """The place of an input, and a function of it that never falls as the input rises. None for
        other expressions."""
        term = self.term
        if term.operator in FLOORS and term.operands[0].operator == "column":
            place: int = term.operands[0].value
            return place, lambda value: self._compute({place: value})  # type: ignore[arg-type]
        return None

    def code(self, names: Sequence[str], *, are_bytes: bool = False) -> str | None:
        """Return Python text that computes the column from variables with the stored values of all
        key columns, of which none is None. With `are_bytes`, each text is bytes. None if there is
        no such text, or if the result may be outside the type."""
        if self.kind.form != "stored" or self._is_text:
            return None
        if not are_bytes:
            texts = self._texts
            names = [f"{it}.encode()" if at in texts else it for at, it in enumerate(names)]
        return code_of(self.term, names)

    def value_of(self, values: Sequence[Any]) -> Any:
        """Return the stored value for the stored values of all key columns; that of a computed
        column does not matter. Raises SchemaViolation."""
        if self._converted:
            values = list(values)
            for place, convert in self._converted:
                if values[place] is not None:
                    values[place] = convert(values[place])
        try:
            found = self._compute(values)
        except ValueError as error:
            if is_of_handler(error):
                raise
            raise self.failure(str(error)) from error
        return found if found is None else self.fitted(found)

    def fitted(self, found: Any) -> Any:
        if self._is_text:
            try:
                return found.decode()
            except UnicodeDecodeError as error:
                raise self.failure("The result is not UTF-8.") from error
        kind = self.kind
        if kind.lowest is not None and not kind.lowest <= found <= kind.highest:
            raise self.failure(f"The result {found} does not fit in {kind.name}.")
        if found != found:
            raise self.failure("The result is NaN, which is not allowed in a key.")
        return found

    def failure(self, why: str) -> SchemaViolation:
        """Return the error for a row that has no value of this column."""
        text = f"the computed column {self.name!r} has no value for this row: {why}"
        return SchemaViolation(text, column=self.name, expression=shown(self.text))

    def difference(self, given: Any, found: Any) -> SchemaViolation:
        """Return the error for a row that names another value than the expression gives. Both are
        stored values."""
        is_shown = [shown(shown_stored(self.kind, it)) for it in (given, found)]
        text = (
            f"the computed column {self.name!r} is {is_shown[0]} in this row, and its expression "
            f"gives {is_shown[1]}: leave the column out"
        )
        return SchemaViolation(
            text,
            column=self.name,
            expression=shown(self.text),
            value=is_shown[0],
            computed=is_shown[1],
        )

    def interval(self, intervals: Mapping[int, tuple[Any, Any]]) -> tuple[Any, Any]:
        """Return the least and the greatest value in rows whose inputs lie in these intervals, both
        ends included. None: there is no such limit."""
        points = [intervals[it] for it in self.inputs]
        try:
            if all(least is not None and least == greatest for least, greatest in points):
                values = [None] * (self.place + KEY_COLUMNS_MAX)
                for place, (least, _) in zip(self.inputs, points, strict=True):
                    values[place] = least
                found = self.value_of(values)
                return found, found
            if self.floor is not None:
                place, floor = self.floor
                least, greatest = (
                    None if it is None else self.fitted(floor(it)) for it in intervals[place]
                )
                return least, greatest
        except (SchemaViolation, ValueError) as error:
            if is_of_handler(error):
                raise  # all others: no row has such values
        return None, None


def _input(place: int, kind: LogicalType) -> Input:
    if kind.form in _UNITS:
        return Input(place, KIND_OF_TYPE[kind.stored], kind.name, _UNITS[kind.form])
    return Input(place, KIND_OF_TYPE[kind.stored])


def _places(term: Term) -> set[int]:
    if term.operator == "column":
        return {term.value}
    return {place for it in term.operands for place in _places(it)}


@lru_cache(SCHEMAS_MAX)
def computed_of_parts(parts: tuple[KeyPart, ...]) -> tuple[Computed, ...]:
    """Return the computed columns among these key columns. Raises SchemaViolation."""
    return tuple([Computed(parts, at) for at, it in enumerate(parts) if it.expression is not None])
