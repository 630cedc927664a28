"""Find dependencies that can't all be true: cycles of events, found with networkx.

Owns: the graph, and how a cycle is chosen, named and shown.

Every transaction has two events, its start and its commit. The code calls them `_Moment`. All
knowledge has the form: one event came before another. A start precedes its own commit. If a
transaction saw a commit or built upon it, that commit came before its start (ww, wr). So did what
its session or real time puts before it. A commit that it did not see came after its start (rw).
Snapshot isolation means that these events can be put in an order. So any cycle breaks it.
Transactions in a circle with two rw side by side, as in write skew, make no cycle. In a
serializable database both events are one, and then they make one.

Real time would be a square number of edges. Instead, each commit leads into a chain of the instants
at which transactions ended, and each start comes out of the chain. A transaction without a sure
answer may commit later than its end, but it has started.
Must not import: any core.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import networkx as nx

from dodona_loadtest.checkers.appends import AppendTransaction
from dodona_loadtest.checkers.list_append_orders import Dependency, Orders
from dodona_loadtest.checkers.timestamps import NEVER_US
from dodona_loadtest.checkers.violation import Promise, Violation

Order = Literal["none", "session", "real time"]
"""What orders transactions besides what they saw of each other. Each includes those before it."""

SOURCES_MAX: Final = 50
"""The shortest cycle of a knot is searched from at most so many events."""
RW_WEIGHT: Final = 1_000
"""With this weight, the cycle with the fewest rw is the shortest: it breaks the most."""


class _Link(NamedTuple):
    """Why an event comes before another, other than by writes and reads.

    `weight` is what it adds to the length of a cycle: a part of a step counts nothing.
    """

    kind: Literal["same", "rw", "session", "real time"]
    weight: int


_SAME: Final = _Link("same", 0)
_INTO_UNSEEN: Final = _Link("rw", 0)
_SESSION: Final = _Link("session", 1)
_INTO_TIME: Final = _Link("real time", 0)
_OUT_OF_TIME: Final = _Link("real time", 1)

_RANKS: Final = {"ww": 0, "same": 0, "wr": 1, "rw": 2, "session": 3, "real time": 4}
"""The lower the rank, the more its cycles break."""
_NAMES: Final[dict[str, Promise]] = {
    "ww": "G0",
    "wr": "G1C",
    "session": "SESSION",
    "real time": "REAL-TIME",
}

_Moment = int
_Edge = Dependency | _Link
_Edges = dict[tuple[_Moment, _Moment], _Edge]


class _Step(NamedTuple):
    """A step from one transaction of a cycle to the next."""

    before: int
    edge: _Edge
    after: int


def find_cycles(
    transactions: Sequence[AppendTransaction],
    orders: Orders,
    order: Order,
    *,
    is_serializable: bool,
) -> list[Violation]:
    graph = _Moments(transactions, orders, is_serializable=is_serializable)
    graph.add_dependencies()
    if order != "none":
        graph.add_sessions()
    if order == "real time":
        graph.add_real_time()
    return graph.violations()


class _Moments:
    def __init__(
        self,
        transactions: Sequence[AppendTransaction],
        orders: Orders,
        *,
        is_serializable: bool,
    ) -> None:
        self._transactions = transactions
        self._orders = orders
        self._is_serializable = is_serializable
        self._edges: _Edges = {}
        self._next_moment = 2 * len(transactions)
        if not is_serializable:
            for number in range(len(transactions)):
                self._edges[2 * number, 2 * number + 1] = _SAME

    def _start(self, number: int) -> _Moment:
        return 2 * number

    def _commit(self, number: int) -> _Moment:
        return 2 * number if self._is_serializable else 2 * number + 1

    def _owner(self, moment: _Moment) -> int | None:
        """Return the transaction of an event, if it has one."""
        return moment // 2 if moment < 2 * len(self._transactions) else None

    def _extra_moments(self, count: int) -> range:
        self._next_moment += count
        return range(self._next_moment - count, self._next_moment)

    def add_dependencies(self) -> None:
        """Add the dependencies. Of several between two events, keep the one that breaks most."""
        add = self._edges.setdefault
        for it in (*self._orders.write_writes, *self._orders.write_reads):
            add((self._commit(it.before), self._start(it.after)), it)
        for it in self._orders.read_writes:
            add((self._start(it.before), self._commit(it.after)), it)
        self._add_unseen()

    def _add_unseen(self) -> None:
        """Add that all readers of a list precede all that was put behind it, through one event."""
        for (key, old, readers, writers), moment in zip(
            self._orders.unseen, self._extra_moments(len(self._orders.unseen)), strict=True
        ):
            for reader in readers:
                self._edges[self._start(reader), moment] = _INTO_UNSEEN
            for writer, new in writers:
                it = Dependency("rw", readers[0], writer, key, old, new)  # or another reader
                self._edges[moment, self._commit(writer)] = it

    def _moment_left(self, number: int) -> _Moment | None:
        """Return the event of a transaction that is past once its caller has its last answer."""
        if self._transactions[number].status in ("ok", "fail"):
            return self._commit(number)
        return None if self._is_serializable else self._start(number)

    def add_sessions(self) -> None:
        """Add the order of each session, which does one thing after another."""
        last: dict[str, _Moment] = {}
        for number in self._by_begin():
            t = self._transactions[number]
            if t.session in last:
                self._edges.setdefault((last[t.session], self._start(number)), _SESSION)
            moment = self._moment_left(number)
            if moment is not None:
                last[t.session] = moment

    def _by_begin(self) -> list[int]:
        numbers = range(len(self._transactions))
        return sorted(numbers, key=lambda number: self._transactions[number].begin_us)

    def add_real_time(self) -> None:
        ends = sorted({t.end_us for t in self._transactions if t.end_us is not None})
        instants = self._extra_moments(len(ends))
        ranks = dict(zip(ends, instants, strict=True))
        for earlier, later in pairwise(instants):
            self._edges[earlier, later] = _INTO_TIME
        for number, t in enumerate(self._transactions):
            moment = self._moment_left(number)
            if t.end_us is not None and moment is not None:
                self._edges[moment, ranks[t.end_us]] = _INTO_TIME
            ended = bisect_left(ends, t.begin_us)
            if ended:
                self._edges[instants[ended - 1], self._start(number)] = _OUT_OF_TIME

    def violations(self) -> list[Violation]:
        """Return a violation for each knot, of the strongest kind that alone makes one in it."""
        return [it for knot in _knots(self._edges) for it in self._judge(knot)]

    def _judge(self, edges: _Edges) -> Iterator[Violation]:
        for kind, rank in _RANKS.items():
            lesser = {moments: it for moments, it in edges.items() if _RANKS[it.kind] <= rank}
            knots = _knots(lesser)
            for knot in knots:
                cycle = _shortest_cycle(knot, self._sources(knot))
                yield self._explain(list(self._steps(cycle)), kind)
            if knots:
                return

    def _sources(self, knot: _Edges) -> list[_Moment]:
        """Return where to search for cycles: first the events that saw least of their past. In a
        large knot most transactions only lie between the two that matter."""
        edges = sorted(knot, key=self._lateness_us, reverse=True)
        return list(dict.fromkeys(before for before, _ in edges))[:SOURCES_MAX]

    def _lateness_us(self, moments: tuple[_Moment, _Moment]) -> int:
        """Return how long the transaction that must come later was over when the other one
        began."""
        before, after = (self._owner(moment) for moment in moments)
        if before is None or after is None:
            return -NEVER_US
        end_us = self._transactions[after].end_us
        return self._transactions[before].begin_us - (NEVER_US if end_us is None else end_us)

    def _steps(self, cycle: Sequence[tuple[_Moment, _Moment]]) -> Iterator[_Step]:
        """Return the steps from one transaction to another, over all events between them."""
        first = next(i for i, (before, _) in enumerate(cycle) if self._owner(before) is not None)
        before = self._owner(cycle[first][0])
        for moments in (*cycle[first:], *cycle[:first]):
            edge, after = self._edges[moments], self._owner(moments[1])
            if after is not None and before is not None and edge is not _SAME:
                yield _Step(before, edge, after)
                before = after

    def _explain(self, steps: list[_Step], kind: str) -> Violation:
        start = min(range(len(steps)), key=lambda i: steps[i].before)
        steps = [*steps[start:], *steps[:start]]
        text = self._transactions[steps[0].before].name
        for step in steps:
            text += f" {_tell(step.edge)} {self._transactions[step.after].name}"
        return Violation(_name_of(steps, kind), text)


def _knots(edges: _Edges) -> list[_Edges]:
    """Return the edges inside each knot. In a knot every event is before and after every other."""
    graph: nx.DiGraph[_Moment] = nx.DiGraph(edges.keys())
    components = [it for it in nx.strongly_connected_components(graph) if len(it) > 1]
    numbers = {moment: number for number, it in enumerate(components) for moment in it}
    knots: list[_Edges] = [{} for _ in components]
    if not knots:
        return []
    for moments, edge in edges.items():
        number = numbers.get(moments[0])
        if number is not None and number == numbers.get(moments[1]):
            knots[number][moments] = edge
    return knots


def _shortest_cycle(knot: _Edges, sources: list[_Moment]) -> list[tuple[_Moment, _Moment]]:
    graph: nx.DiGraph[_Moment] = nx.DiGraph()
    for (before, after), edge in knot.items():
        graph.add_edge(before, after, weight=_weight(edge))
    best: list[_Moment] = []
    length: int | None = None
    for source in sources:
        previous, distances = nx.dijkstra_predecessor_and_distance(graph, source, cutoff=length)
        for last in graph.predecessors(source):
            if last not in distances:
                continue
            total = distances[last] + graph[last][source]["weight"]
            if length is None or total < length:
                best, length = _path(previous, source, last), total
        if length in (2, RW_WEIGHT + 1):
            break  # a cycle of two transactions
    return list(pairwise([*best, best[0]]))


def _path(
    previous: dict[_Moment, list[_Moment]], source: _Moment, target: _Moment
) -> list[_Moment]:
    path = [target]
    while path[-1] != source:
        path.append(previous[path[-1]][0])
    return path[::-1]


def _weight(edge: _Edge) -> int:
    if isinstance(edge, _Link):
        return edge.weight
    return RW_WEIGHT if edge.kind == "rw" else 1


def _name_of(steps: list[_Step], kind: str) -> Promise:
    """Return the name of a cycle. `kind` is the weakest of its dependencies."""
    if kind != "rw":
        return _NAMES[kind]
    are_rw = [step.edge.kind == "rw" for step in steps]
    if sum(are_rw) == 1:
        return "G-SINGLE"
    are_adjacent = any(one and other for one, other in pairwise([*are_rw, are_rw[0]]))
    return "G2" if are_adjacent else "G-NONADJACENT"


def _tell(edge: _Edge) -> str:
    if isinstance(edge, _Link):
        return f"→ {edge.kind} →"
    if edge.kind == "wr":
        return f"→ wr {edge.key}: {edge.old} →"
    old = "empty" if edge.old is None else edge.old
    return f"→ {edge.kind} {edge.key}: {old}, {edge.new} →"
