"""Parameters of scenarios, with their meaning: the one list for options and documents.

Owns: names, defaults, bounds and words. Invariant: every field names its scenarios, and a value out
of bounds is refused before anything runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from dodona_wire.types import Durability

Distribution = Literal["zipfian", "latest", "uniform"]
Number = int | float
ALL_BUT: Final = "all but "


class About(NamedTuple):
    """The meaning of a parameter, the scenarios that use it, and its bounds."""

    meaning: str
    scenarios: str
    """Names of scenarios, with a star for the rest of a name; or all except these."""
    lowest: Number | None = None
    highest: Number | None = None

    def is_of(self, scenario: str) -> bool:
        """Return whether the scenario uses the parameter."""
        names = self.scenarios.removeprefix(ALL_BUT)
        is_named = any(fnmatchcase(scenario, name) for name in names.split(", "))
        return is_named != self.scenarios.startswith(ALL_BUT)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of all scenarios; each uses some."""

    rows: Annotated[
        int,
        About("rows at first; customers of SmallBank", "all but timestamps, hot_rows", 2, 100_000),
    ] = 1_000
    tablets: Annotated[int, About("tablets of each table", "all but timestamps", 1, 64)] = 4
    value_bytes: Annotated[
        int,
        About(
            "length of a row's value",
            "row_commits, cross_cell_commits, non_atomic, snapshot_reads, scans",
            32,
            16_384,
        ),
    ] = 100
    read_share: Annotated[
        float,
        About(
            "share of operations that read; -1: the scenario's own",
            "non_atomic, hot_rows, snapshot_reads, scans",
            -1,
            1,
        ),
    ] = -1.0
    timestamps_per_call: Annotated[int, About("timestamps in a call", "timestamps", 1, 100_000)] = 1
    rows_per_call: Annotated[int, About("rows of a write or lookup", "non_atomic", 1, 1_000)] = 4
    durability: Annotated[
        Durability, About("sync: writes are answered once they are on disk", "non_atomic")
    ] = "async"
    hot_rows: Annotated[int, About("counters that all increment", "hot_rows", 1, 1_000)] = 4
    keys_per_read: Annotated[int, About("keys of a lookup", "snapshot_reads", 1, 1_000)] = 10
    scan_rows_max: Annotated[
        int, About("the longest scan, in rows", "scans, ycsb_e", 1, 10_000)
    ] = 100
    distribution: Annotated[
        Literal["standard"] | Distribution,
        About("how records are chosen; standard: as the mix has it", "ycsb_*"),
    ] = "standard"
    zipfian_theta: Annotated[
        float, About("how uneven a Zipfian choice is", "ycsb_*", 0.01, 0.999)
    ] = 0.99
    field_count: Annotated[int, About("fields of a record", "ycsb_*", 1, 100)] = 10
    field_bytes: Annotated[int, About("length of a field", "ycsb_*", 32, 16_384)] = 100
    hotspot_accounts: Annotated[int, About("customers of the hotspot", "smallbank", 2, 100_000)] = (
        100
    )
    hotspot_share: Annotated[
        float, About("share of transactions whose customers are of the hotspot", "smallbank", 0, 1)
    ] = 0.9

    def __post_init__(self) -> None:
        """Raise ValueError with the option that is out of bounds."""
        for option in options():
            value, about = getattr(self, option.name), option.about
            if option.choices and value not in option.choices:
                raise ValueError(f"{option.flag} is one of {', '.join(option.choices)}")
            if about.lowest is not None and value < about.lowest:
                raise ValueError(f"{option.flag} must be at least {about.lowest:g}")
            if about.highest is not None and value > about.highest:
                raise ValueError(f"{option.flag} must be at most {about.highest:g}")

    def reads(self, usual: float) -> float:
        """Return the share of operations that read."""
        return usual if self.read_share < 0 else self.read_share


class Option(NamedTuple):
    """A parameter, as a command line has it."""

    name: str
    """The name of the field."""
    about: About
    type: type
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def default(self) -> Any:
        return Parameters.__dataclass_fields__[self.name].default


def options() -> Iterator[Option]:
    """Return all options, in the order in which a reader sees them."""
    for name, hint in get_type_hints(Parameters, include_extras=True).items():
        kind, about = get_args(hint)
        choices = _choices(kind)
        yield Option(name, about, str if choices else kind, choices)


def _choices(kind: Any) -> tuple[str, ...]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(choice for part in get_args(kind) for choice in _choices(part))
