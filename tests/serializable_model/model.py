"""The model: what clients send, what arrives, and what goes wrong.

Owns: the steps. A message that was sent may arrive at any later time, several times, or never. So
messages need no state: a request is known from its client, and an answer from what a cell has said.
A transaction that waits in a cell is a request that has not arrived. Must not import: planted bugs.
"""

from collections.abc import Iterator

from replication_model.step import Step
from serializable_model import promises
from serializable_model.cells import CELLS, LOSE, TAKE, Cells
from serializable_model.rules import Rules
from serializable_model.state import (
    ABORT,
    COMMITTED,
    ENDED,
    HELD,
    LOCKED,
    NO,
    NONE,
    PREPARED,
    REFUSED,
    UNDECIDED,
    UNSAID,
    Case,
    Client,
    Record,
    State,
    alike,
)

Steps = Iterator[Step[State]]


class SerializableModel(Cells):
    """One configuration under some rules, as the search needs it."""

    def __init__(
        self,
        case: Case,
        rules: Rules | None = None,
        checked: frozenset[str] = promises.EVERY,
    ) -> None:
        super().__init__(case, rules)
        self.checked = checked
        self._broken: dict[promises.History, str | None] = {}

    def first(self) -> State:
        count = len(self.case.txns)
        return State(1, (0, 0), ((Record(), Record()),) * count, (Client(),) * count)

    def pack(self, state: State) -> State:
        return alike(state)

    def unpack(self, packed: State) -> State:
        return packed

    def steps(self, state: State) -> Steps:
        goes_on = False
        for step in self.progress(state):
            goes_on = True
            yield step
        if not goes_on and promises.DEADLOCK in self.checked:
            left = promises.waiting(state)
            if left is not None:
                yield Step("all messages have arrived", (), state, left)
        yield from self.accidents(state)

    def violation(self, state: State) -> str | None:
        if promises.ATOMIC in self.checked and (broken := promises.not_atomic(state)):
            return broken
        if promises.ONCE in self.checked and (broken := promises.not_once(self.case, state)):
            return broken
        past = promises.history(state)
        if past not in self._broken:
            self._broken[past] = self._broken_in(past)
        return self._broken[past]

    def _broken_in(self, past: promises.History) -> str | None:
        if promises.SERIALIZABLE in self.checked:
            broken = promises.not_serial(self.case, past)
            if broken is not None:
                return broken
        if promises.VALID in self.checked and (broken := promises.not_valid(self.case, past)):
            return broken
        is_asked = promises.SNAPSHOT in self.checked
        return promises.not_snapshot(self.case, past) if is_asked else None

    # ---- what happens if each message arrives

    def progress(self, state: State, dead: int = 0) -> Steps:
        """What happens without accidents. The messages of dead clients are lost, and participants
        ask the coordinator."""
        for at, client in enumerate(state.clients):
            if dead >> at & 1:
                yield from self._left(state, at, client)
            elif client.start:
                yield from self._arrivals(state, at, client)
            else:
                yield from self._begin(state, at)

    def _arrivals(self, state: State, at: int, client: Client) -> Steps:
        for cell in self.participants(state, at):
            yield from self._in_cell(state, at, cell)
        if client.decided == UNDECIDED:
            yield from self._report(state, at, client)

    def _left(self, state: State, at: int, client: Client) -> Steps:
        """What happens to the transaction of a dead client."""
        for cell in self.participants(state, at) if client.start else ():
            if state.records[at][cell].phase != NONE:
                yield from self._in_cell(state, at, cell)
        if self.rules.asks_coordinator:
            yield from self._recovery(state, at)

    def _begin(self, state: State, at: int) -> Steps:
        first = self.case.txns[at].again_of
        if first is None:
            yield self._begin_first(state, at)
        else:
            yield from self._begin_again(state, at, first)

    def _begin_again(self, state: State, at: int, first: int) -> Steps:
        """The client lets the first attempt go, and its abort may arrive late, or never."""
        client = state.clients[first]
        said = tuple(client.said[cell] for cell in self.participants(state, first))
        is_open = client.start and client.decided == UNDECIDED
        if not is_open or not self.rules.may_begin_again(said):
            return
        heard: tuple[int, ...] = (UNSAID, UNSAID)
        if not self.rules.has_own_answers:
            heard = tuple(max(it, UNSAID) for it in client.said)
        again = Client(
            state.clock, state.reshards, client.ended_before, heard, since=client.read_at
        )
        after = state._replace(clock=state.clock + 1).with_client(at, again)
        after = after.with_client(first, client._replace(decided=ABORT))
        yield Step("T{} sends T{} again at {}", (at, first, state.clock), after)

    def _begin_first(self, state: State, at: int) -> Step[State]:
        ended = sum(1 << other for other, it in enumerate(state.clients) if it.decided > 0)
        client = Client(state.clock, state.reshards, ended)
        later = state._replace(clock=state.clock + 1)
        if self.case.txns[at].writes:
            return Step("T{} begins at {}", (at, state.clock), later.with_client(at, client))
        done = client._replace(decided=state.clock)
        text = "T{} begins at {}, reads, and ends"
        return Step(text, (at, state.clock), later.with_client(at, done))

    def _report(self, state: State, at: int, client: Client) -> Steps:
        said = [client.said[cell] for cell in self.participants(state, at)]
        if NO in said:
            after = state.with_client(at, client._replace(decided=ABORT))
            yield Step("T{} is reported as aborted", (at,), after)
        elif UNSAID not in said:
            decided = self.rules.committed_at(said)
            after = state.with_client(at, client._replace(decided=decided))
            yield Step("T{} is reported as committed at {}", (at, decided), after)

    # ---- a cell

    def _in_cell(self, state: State, at: int, cell: int) -> Steps:
        record = state.records[at][cell]
        if record.phase == NONE:
            yield from self._arrive(state, at, cell, record)
        elif record.phase in HELD:
            outcome = self._outcome(state, at, cell)
            if outcome == ABORT:
                yield Step("T{} aborts in cell {}", (at, cell), _refused(state, at, cell))
            if record.phase == LOCKED:  # also if the abort comes late
                yield self._stamp(state, at, cell, record)
            elif outcome > UNDECIDED:
                after = state.with_record(at, cell, Record(COMMITTED, outcome))
                yield Step("T{} commits in cell {}", (at, cell), after)

    def _outcome(self, state: State, at: int, cell: int) -> int:
        """Return what a cell can hear of the outcome: from the coordinator, or from the client."""
        coordinator = self.participants(state, at)[0]
        decided = state.clients[at].decided
        if cell == coordinator or decided == ABORT:
            return decided
        record = state.records[at][coordinator]
        if record.phase in ENDED:
            return record.at if record.phase == COMMITTED else ABORT
        return UNDECIDED

    def _arrive(self, state: State, at: int, cell: int, record: Record) -> Steps:
        rules, client = self.rules, state.clients[at]
        fenced_at = rules.fenced_at(client.start, client.read_at)
        if rules.obeys_fence and fenced_at <= self.fence(state, at, cell):
            after = _refused(state, at, cell)
            yield Step("cell {} refuses T{}: the fence", (cell, at), after)
            return
        if not rules.asks_under_locks and not record.at:
            after = state.with_record(at, cell, record._replace(at=state.clock))
            after = after._replace(clock=state.clock + 1)
            yield Step("cell {} asks for p of T{}: {}", (cell, at, state.clock), after)
            return
        if not rules.checks_in_one_step and not record.is_checked and self.read(state, at, cell):
            yield from self._validate(state, at, cell, record)
            return
        yield from self._lock(state, at, cell, record)

    def _validate(self, state: State, at: int, cell: int, record: Record) -> Steps:
        """For a bug: reads are validated in a step before the locks."""
        met = self.validated(state, at, cell)
        if met == TAKE:
            after = state.with_record(at, cell, record._replace(is_checked=True))
            yield Step("cell {} validates the reads of T{}", (cell, at), after)
        elif met == LOSE:
            yield Step("cell {} refuses T{}", (cell, at), _refused(state, at, cell))

    def _lock(self, state: State, at: int, cell: int, record: Record) -> Steps:
        met = self.meeting(state, at, cell)
        if met == LOSE:
            yield Step("cell {} refuses T{}", (cell, at), _refused(state, at, cell))
        elif met == TAKE:
            is_held = self.rules.holds_without_writes or bool(self.written(state, at, cell))
            after = state.with_record(at, cell, Record(LOCKED, record.at, is_held))
            yield Step("T{} has its locks in cell {}", (at, cell), after)
        elif not self.rules.checks_again and not record.is_checked:
            after = state.with_record(at, cell, record._replace(is_checked=True))
            yield Step("T{} waits in cell {}", (at, cell), after)

    def _stamp(self, state: State, at: int, cell: int, record: Record) -> Step[State]:
        p = record.at or state.clock
        later = state._replace(clock=state.clock + (not record.at))
        client = state.clients[at]
        if client.said[cell] == UNSAID:
            later = later.with_client(at, _heard(client, cell, p))
        if len(self.participants(state, at)) == 1:
            after = later.with_record(at, cell, Record(COMMITTED, p))
            return Step("T{} commits at {} in cell {}", (at, p, cell), after)
        after = later.with_record(at, cell, record._replace(phase=PREPARED, at=p))
        return Step("T{} is prepared at {} in cell {}", (at, p, cell), after)

    # ---- accidents

    def accidents(self, state: State) -> Steps:
        case = self.case
        if case.recovers:
            for at in range(len(case.txns)):
                yield from self._recovery(state, at)
        if state.crashes < case.crashes_max:
            for cell in CELLS:
                yield Step("cell {} restarts", (cell,), self._restarted(state, cell))
        if state.reshards < len(case.borders) - 1:
            yield from self._reshard(state)

    def _recovery(self, state: State, at: int) -> Steps:
        """A prepared participant asks the coordinator, which asks all of them."""
        cells = self.participants(state, at) if state.clients[at].start else ()
        theirs = [state.records[at][cell] for cell in cells]
        if not any(it.phase == PREPARED for it in theirs) or theirs[0].phase in ENDED:
            return
        if all(it.phase == PREPARED for it in theirs):
            c = self.rules.committed_at([it.at for it in theirs])
            after = state.with_record(at, cells[0], Record(COMMITTED, c))
            yield Step("the coordinator of T{} commits at {}", (at, c), after)
            return
        after = state
        for cell, record in zip(cells, theirs, strict=True):
            if record.phase != PREPARED or cell == cells[0]:
                after = _refused(after, at, cell)
        yield Step("the coordinator of T{} aborts", (at,), after)

    def _restarted(self, state: State, cell: int) -> State:
        """Locks without a prepared record are gone. The fence refuses what began before."""
        after = self._fenced(state, cell)._replace(crashes=state.crashes + 1)
        for at in range(len(self.case.txns)):
            record = state.records[at][cell]
            is_in_log = self.rules.appends_without_writes or self.written(state, at, cell)
            if record.phase in (NONE, LOCKED) or (record.phase == PREPARED and not is_in_log):
                after = after.with_record(at, cell, Record())
            elif record.phase == PREPARED and not self.rules.keeps_over_restart:
                after = after.with_record(at, cell, record._replace(is_held=False))
        return after

    def _reshard(self, state: State) -> Steps:
        """Rows move from cell 0 to cell 1. This waits for their holders. The mount takes a fence,
        which refuses a client with the old border: its request for these rows comes to cell 0."""
        after = self._fenced(state, 0)
        after = after._replace(reshards=state.reshards + 1, moved_fence=after.fences[0])
        for at, (record, _) in enumerate(state.records):
            if record.phase not in HELD:
                continue
            if self.rules.reshard_waits_for_reads or self.written(state, at, 0):
                return
            after = after.with_record(at, 0, record._replace(is_held=False))
        yield Step("a reshard moves the border to {}", (self.case.borders[after.reshards],), after)

    def _fenced(self, state: State, cell: int) -> State:
        one, two = state.fences
        fences = (one, state.clock) if cell else (state.clock, two)
        return state._replace(fences=fences, clock=state.clock + 1)


def _heard(client: Client, cell: int, said: int) -> Client:
    return client._replace(said=(*client.said[:cell], said, *client.said[cell + 1 :]))


def _refused(state: State, at: int, cell: int) -> State:
    after = state.with_record(at, cell, Record(REFUSED))
    client = state.clients[at]
    if client.said[cell] == UNSAID:
        after = after.with_client(at, _heard(client, cell, NO))
    return after
