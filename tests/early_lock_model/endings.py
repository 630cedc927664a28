"""Whether all comes to an end: no state is left for ever, and no request starves.

Owns: the graph of what happens without new accidents, and its rounds. A round is a set of states
that can follow each other again and again. Must not import: planted bugs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from early_lock_model.model import EarlyLockModel
from early_lock_model.promises import modes, rest, settling
from early_lock_model.state import State
from replication_model.explorer import explore
from replication_model.step import Step

Graph = dict[State, list[State]]
Move = tuple[int, Step[State]]
"""A step, and the transaction that it belongs to."""
Node = tuple[State, frozenset[int]]
"""A state on a way, and the transactions that have done something before it."""


class Recorder:
    """The same model, which notes the states that a search meets."""

    def __init__(self, model: EarlyLockModel) -> None:
        self.title, self.first = model.title, model.first
        self.pack, self.unpack = model.pack, model.unpack
        self.states = [model.pack(model.first())]
        self._model = model

    def steps(self, state: State) -> Iterator[Step[State]]:
        """A broken promise would end the search."""
        for step in self._model.steps(state):
            yield step if step.violation is None else replace(step, violation=None)

    def violation(self, state: State) -> str | None:
        self.states.append(self.pack(state))
        return None


def unsettled(model: EarlyLockModel) -> str | None:
    """Return what never ends after some state, or None. Accidents end there, and messages arrive.
    The clients are alive, or all are dead, or one owner is."""
    recorder = Recorder(model)
    explore(recorder)
    for dead, who in modes(model):
        graph = _reach(model, recorder.states, dead)
        for state, after in graph.items():
            if not after and (left := rest(state, dead)):
                return f"{who}, and {left}"
        if rounds(graph):
            return f"{who}, and a round never ends"
    return None


def _reach(model: EarlyLockModel, states: list[State], dead: int) -> Graph:
    graph: Graph = {}
    waiting = list(states)
    while waiting:
        state = waiting.pop()
        if state not in graph:
            graph[state] = [model.pack(it.state) for it in settling(model, state, dead)]
            waiting += graph[state]
    return graph


def rounds(graph: Graph) -> list[set[State]]:
    """Return the sets of states that lead back to themselves."""
    backward: Graph = {state: [] for state in graph}
    for state, after in graph.items():
        for other in after:
            if other in backward:
                backward[other].append(state)
    found, seen = [], set[State]()
    for state in reversed(_finished(graph)):
        if state not in seen:
            members = _spread(backward, state, seen)
            if len(members) > 1 or state in graph[state]:
                found.append(members)
    return found


def _finished(graph: Graph) -> list[State]:
    """Return the states in the order in which a search in depth leaves them."""
    order, seen = [], set[State]()
    for first in graph:
        path = [(first, iter(graph[first]))] if first not in seen else []
        seen.add(first)
        while path:
            state, after = path[-1]
            found = next((it for it in after if it in graph and it not in seen), None)
            if found is None:
                order.append(state)
                path.pop()
            else:
                seen.add(found)
                path.append((found, iter(graph[found])))
    return order


def _spread(graph: Graph, first: State, seen: set[State]) -> set[State]:
    members, waiting = set[State](), [first]
    while waiting:
        state = waiting.pop()
        if state not in seen:
            seen.add(state)
            members.add(state)
            waiting += graph[state]
    return members


# ---- starving


@dataclass(frozen=True, slots=True)
class Starved:
    """A request that may wait for ever, although each client goes on."""

    trace: tuple[str, ...]
    """A shortest way into the round, and then once around."""
    round_length: int


def starved(model: EarlyLockModel, at: int) -> Starved | None:
    """Return a round in which a request of this transaction waits all the time. The round is fair:
    each client that can do something in all of its states does something in it."""
    recorder = Recorder(model)
    explore(recorder)
    graph = {
        state: [model.pack(step.state) for _, step in _moves(model, state)]
        for state in recorder.states
        if _waits(state, at)
    }
    fair = [it for it in rounds(graph) if _is_fair(model, it)]
    if not fair:
        return None
    inside = set.union(*fair)
    into = _way(model, model.pack(model.first()), inside, set(recorder.states), set())
    start = model.pack(into[-1][1].state)
    members = next(it for it in fair if start in it)
    around = _way(model, start, {start}, members, _active(model, members))
    return Starved(tuple(step.text for _, step in (*into, *around)), len(around))


def _moves(model: EarlyLockModel, state: State) -> Iterator[Move]:
    for at in range(len(state.clients)):
        for step in model.moves(state, at):
            yield at, step


def _waits(state: State, at: int) -> bool:
    return any(it.at == at and not it.granted for cell in state.cells for it in cell.queue)


def _active(model: EarlyLockModel, members: set[State]) -> set[int]:
    """Return who does something inside the round."""
    return {
        at
        for state in members
        for at, it in _moves(model, state)
        if model.pack(it.state) in members
    }


def _is_fair(model: EarlyLockModel, members: set[State]) -> bool:
    always = set.intersection(*({at for at, _ in _moves(model, it)} for it in members))
    return always <= _active(model, members)


def _way(
    model: EarlyLockModel, first: State, goal: set[State], inside: set[State], actors: set[int]
) -> list[Move]:
    """Return the shortest way to the goal, on which each of the actors does something."""
    parents: dict[Node, tuple[Node, Move] | None] = {}
    frontier: list[Node] = [(first, frozenset())]
    parents[frontier[0]] = None
    for node in frontier:
        for at, step in _moves(model, node[0]):
            after = model.pack(step.state)
            done = node[1] | ({at} & actors)
            if after not in inside or (after, done) in parents:
                continue
            parents[after, done] = (node, (at, step))
            if after in goal and done == actors:
                return _back(parents, (after, done))
            frontier.append((after, done))
    raise AssertionError("no way leads there")


def _back(parents: dict[Node, tuple[Node, Move] | None], node: Node) -> list[Move]:
    way = list[Move]()
    while (found := parents[node]) is not None:
        node, step = found
        way.append(step)
    return way[::-1]
