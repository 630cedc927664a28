"""A search over all states of a model, breadth first.

Owns: the search, and the shortest trace to a violation. Must not import: a model.
"""

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from replication_model.step import Step


class Model(Protocol):
    """What the search needs of a model. `pack` is the same for states that are alike."""

    @property
    def title(self) -> str: ...
    def first(self) -> Any: ...
    def steps(self, state: Any) -> Iterator[Step[Any]]: ...
    def violation(self, state: Any) -> str | None: ...
    def pack(self, state: Any) -> Hashable: ...
    def unpack(self, packed: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to."""

    title: str
    state_count: int
    step_count: int
    depth: int
    seconds: float
    is_complete: bool
    """All states were met. A search ends early at a violation or a limit."""
    counts_by_action: dict[str, int]
    violation: str | None = None
    trace: tuple[str, ...] = ()


class _Search:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.parents: dict[Any, Any] = {}
        self.counts: dict[str, int] = {}
        self.violation: str | None = None
        self.last: tuple[Any, Step[Any]] | None = None

    def expand(self, frontier: list[Any]) -> list[Any]:
        """Return the states one step further that were not met before."""
        model, parents, counts = self.model, self.parents, self.counts
        pack, found = model.pack, []
        for packed in frontier:
            for step in model.steps(model.unpack(packed)):
                counts[step.action] = counts.get(step.action, 0) + 1
                after = pack(step.state)
                if step.violation is None and after in parents:
                    continue
                if violation := step.violation or model.violation(step.state):
                    self.violation, self.last = violation, (packed, step)
                    return []
                parents[after] = packed
                found.append(after)
        return found

    def trace(self) -> tuple[str, ...]:
        if self.last is None:
            return ()
        packed, step = self.last
        texts = [step.text]
        while (before := self.parents[packed]) is not None:
            texts.append(self._text_between(before, packed))
            packed = before
        return tuple(reversed(texts))

    def _text_between(self, before: Any, after: Any) -> str:
        model = self.model
        for step in model.steps(model.unpack(before)):
            if step.violation is None and model.pack(step.state) == after:
                return step.text
        raise AssertionError("no step leads to the state that follows")


def explore(model: Model, states_max: int | None = None) -> Found:
    """Look at every state, or at so many. The trace is a shortest one."""
    began = time.process_time()
    search = _Search(model)
    first = model.pack(model.first())
    search.parents[first] = None
    frontier, depth = [first], 0
    while frontier and (states_max is None or len(search.parents) < states_max):
        frontier = search.expand(frontier)
        depth += 1
    return Found(
        model.title,
        len(search.parents),
        sum(search.counts.values()),
        depth,
        time.process_time() - began,
        search.violation is None and not frontier,
        search.counts,
        search.violation,
        search.trace(),
    )
