"""From a run that fails to the least that still fails: delta debugging over what goes wrong.

Owns: the order in which things are left out (kinds of rates, scheduled faults, time, sessions,
again until nothing more can go), and the limits of it. A run still fails if it breaks one of the
promises that the first one broke. Must not import: any core.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, TypeVar

from simulator.faults import Fault, Options
from simulator.simulation import SECOND_US, Result, options_of, simulate
from simulator.thinning import Thinning, value_of, wild_names

RUNS_MAX: Final = 300
REAL_SECONDS_MAX: Final = 240.0

Item = TypeVar("Item")
Run = Callable[[Thinning], Result]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest run found. It is minimal if it passes without any one of what is left."""

    result: Result
    left: list[str]
    """What still goes wrong, in words."""
    run_count: int
    is_minimal: bool

    @property
    def lines(self) -> list[str]:
        """For a reader: the command first, the violation last."""
        how = "nothing more can be left out" if self.is_minimal else "there was no time for more"
        lines = [f"shrunk in {self.run_count} runs ({how}): {self.result.command}"]
        lines += [f"  {words}" for words in self.left]
        return [*lines, str(self.result.violations[0])]


def shrink_seed(failed: Result) -> Shrunk:
    """What a failed run of the cores as they are comes to."""

    def run(thinning: Thinning) -> Result:
        return simulate(failed.seed, failed.seconds, failed.workload, thinning=thinning)

    return shrink(failed, options_of(failed.seed, failed.seconds), run)


def shrink(
    failed: Result,
    options: Options,
    run: Run,
    *,
    runs_max: int = RUNS_MAX,
    real_seconds_max: float = REAL_SECONDS_MAX,
) -> Shrunk:
    """`options` are all that the failed run's seed drew, and `run` runs it thinned out."""
    shrinking = _Shrinking(failed, options, run, runs_max, time.monotonic() + real_seconds_max)
    shrinking.go()
    return Shrunk(
        shrinking.best,
        left_in_words(shrinking.best.thinning.thin(options)),
        shrinking.run_count,
        is_minimal=not shrinking.is_cut_short,
    )


def minimize(items: Sequence[Item], fails: Callable[[tuple[Item, ...]], bool]) -> tuple[Item, ...]:
    """Delta debugging: fewer of the items, so that `fails` does not hold with any one less.

    `fails` holds for all of them. First all are left out at once, in the end each by itself.
    """
    left, size = tuple(items), len(items)
    while left:
        is_smaller, first = False, 0
        while first < len(left):
            candidate = left[:first] + left[first + size :]
            if fails(candidate):
                left, is_smaller = candidate, True
            else:
                first += size
        if size == 1 and not is_smaller:
            break
        size = -(-size // 2)
    return left


class _Shrinking:
    """One failure's way down. `best` is the smallest run so far that fails."""

    def __init__(
        self, failed: Result, options: Options, run: Run, runs_max: int, deadline_s: float
    ) -> None:
        self.best = failed
        self.run_count = 0
        self.is_cut_short = False
        self._promises = {violation.promise for violation in failed.violations}
        self._options = options
        self._run = run
        self._runs_max = runs_max
        self._deadline_s = deadline_s
        self._passing: dict[Thinning, None] = {}

    def go(self) -> None:
        """Until a whole round leaves nothing out: what is left is then minimal."""
        before = None
        while before != self.best.thinning:
            before = self.best.thinning
            self._drop_rates()
            self._drop_faults()
            self._shorten()
            self._drop_sessions()

    def _fails(self, thinning: Thinning) -> bool:
        if thinning == self.best.thinning:
            return True
        if thinning in self._passing:
            return False
        if self.run_count >= self._runs_max or time.monotonic() > self._deadline_s:
            self.is_cut_short = True
            return False
        self.run_count += 1
        result = self._run(thinning)
        if self._promises.isdisjoint(violation.promise for violation in result.violations):
            self._passing[thinning] = None
            return False
        self.best = result
        return True

    def _drop_rates(self) -> None:
        thinning = self.best.thinning
        every = wild_names(self._options)

        def without_all_but(names: tuple[str, ...]) -> Thinning:
            return replace(thinning, without=tuple(name for name in every if name not in names))

        left = [name for name in every if name not in thinning.without]
        minimize(left, lambda names: self._fails(without_all_but(names)))

    def _drop_faults(self) -> None:
        thinning = self.best.thinning
        left = thinning.keep
        if left is None:
            left = tuple(range(len(self._options.faults)))
        minimize(left, lambda keep: self._fails(replace(thinning, keep=keep)))

    def _shorten(self) -> None:
        thinning = self.best.thinning
        passes_s, fails_s = 0, thinning.until_s or self.best.seconds
        while fails_s - passes_s > 1:
            middle_s = (passes_s + fails_s) // 2
            if self._fails(replace(thinning, until_s=middle_s)):
                fails_s = middle_s
            else:
                passes_s = middle_s

    def _drop_sessions(self) -> None:
        thinning = self.best.thinning
        for count in range(1, thinning.session_count or self._options.session_count):
            if self._fails(replace(thinning, session_count=count)):
                return


def left_in_words(options: Options) -> list[str]:
    """All that still goes wrong."""
    rates = [f"{name}: {value_of(options, name):g}" for name in wild_names(options)]
    return rates + [in_words(fault) for fault in options.faults]


def in_words(fault: Fault) -> str:
    """`at 12.345 s: crash cell-1 for 0.8 s`."""
    length = f"{'by' if fault.kind == 'clock_step' else 'for'} {fault.duration_us / SECOND_US:g} s"
    words = f"at {fault.at_us / SECOND_US:.3f} s: {fault.kind} {fault.target} {length}"
    for field in fields(fault)[4:]:
        if value := getattr(fault, field.name):
            words += f", {field.name} {value if isinstance(value, str) else ' '.join(value)}"
    return words
