"""A run with less going wrong than its seed would have: what shrinking a failure comes to.

Owns: which options can be calmed, found by their types, and the words for it on a command line.
Everything that is left stays as it was drawn: the seed's other decisions are not drawn anew.
Must not import: any core.
"""

from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Any

from simulator.faults import Options

NONE = "none"


@dataclass(frozen=True, slots=True)
class Thinning:
    """Nothing left out, to begin with."""

    keep: tuple[int, ...] | None = None
    """Which entries of `Options.faults` still happen; None: all."""
    without: tuple[str, ...] = ()
    """Options that are calm, by name: `moves_rate`, `network.loss_rate`."""
    until_s: int | None = None
    """When faults end: earlier than they were drawn for."""
    session_count: int | None = None

    @property
    def arguments(self) -> str:
        """What says so on a command line."""
        words = []
        if self.keep is not None:
            words.append(f"--keep {','.join(map(str, self.keep)) or NONE}")
        if self.without:
            words.append(f"--without {','.join(self.without)}")
        if self.until_s is not None:
            words.append(f"--until {self.until_s}")
        if self.session_count is not None:
            words.append(f"--sessions {self.session_count}")
        return " ".join(words)

    def thin(self, options: Options) -> Options:
        """What is left. Raises ValueError where these options have no such thing."""
        if self.keep is not None:
            count = len(options.faults)
            if not all(0 <= index < count for index in self.keep):
                raise ValueError(f"--keep: this run has faults 0 to {count - 1}")
            options = replace(options, faults=tuple(options.faults[it] for it in self.keep))
        if self.session_count is not None:
            options = replace(options, session_count=self.session_count)
        for name in self.without:
            options = _calmed(options, name, name)
        return options


def parse_keep(text: str) -> tuple[int, ...]:
    """The numbers behind `--keep`. Raises ValueError."""
    return () if text == NONE else tuple(int(word) for word in text.split(","))


def wild_names(options: object) -> list[str]:
    """All that makes something go wrong and could be calmed, in the options' own order."""
    names = []
    for field, value in _items(options):
        if _is_nested(value):
            names += [f"{field.name}.{name}" for name in wild_names(value)]
        elif _can_be_calmed(field, value) and value != _calm_value(field):
            names.append(field.name)
    return names


def value_of(options: object, name: str) -> Any:
    """An option by its name."""
    for part in name.split("."):
        options = getattr(options, part)
    return options


def _calmed(options: Any, name: str, path: str) -> Any:
    first, _, rest = path.partition(".")
    for field, value in _items(options):
        if field.name != first:
            continue
        if rest and _is_nested(value):
            return replace(options, **{first: _calmed(value, name, rest)})
        if not rest and _can_be_calmed(field, value):
            return replace(options, **{first: _calm_value(field)})
    raise ValueError(f"--without: no option that could be calmed is called {name}")


def _items(options: Any) -> list[tuple[Field[Any], Any]]:
    return [(field, getattr(options, field.name)) for field in fields(options)]


def _is_nested(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _can_be_calmed(field: Field[Any], value: object) -> bool:
    return "calm" in field.metadata or isinstance(value, float)


def _calm_value(field: Field[Any]) -> Any:
    return field.metadata.get("calm", 0.0 if field.default is MISSING else field.default)
