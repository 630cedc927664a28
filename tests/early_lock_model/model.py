"""The model: what clients send, what arrives, and what goes wrong.

Owns: the steps. A message that was sent may arrive at any later time, several times, or never. So
messages need no state: a request is known from its client, and an answer from what was said. Must
not import: planted bugs.
"""

from collections.abc import Iterator

from early_lock_model import promises
from early_lock_model.cells import STAY, TAKE, Cells
from early_lock_model.state import (
    ABORT,
    ASKING,
    BLIND,
    COMMITTED,
    COMMITTING,
    DONE,
    FAILED,
    IDLE,
    LOCKED,
    NONE,
    NOWAIT,
    OWNERS,
    PLAIN,
    PREPARED,
    READING,
    REFUSED,
    SKIP,
    UNDECIDED,
    UNSAID,
    Cell,
    Client,
    Entry,
    Record,
    Request,
    State,
    ranked,
    rows_named,
)
from replication_model.step import Step

Steps = Iterator[Step[State]]


class EarlyLockModel(Cells):
    """One configuration under some rules, as the search needs it."""

    def first(self) -> State:
        count = len(self.case.txns)
        cell = Cell(0, (), 0, (Record(),) * count)
        clients = tuple(Client(said=(UNSAID,) * len(it)) for it in self.routes)
        return State(1, (cell,) * len(self.masks), clients)

    def pack(self, state: State) -> State:
        return ranked(state) if self.case.is_endless else state

    def unpack(self, packed: State) -> State:
        return packed

    def steps(self, state: State) -> Steps:
        yield from self.progress(state)
        yield from self.accidents(state)

    def violation(self, state: State) -> str | None:
        return promises.violation(self, state)

    # ---- what happens if each message arrives

    def progress(self, state: State, dead: int = 0) -> Steps:
        """What happens without accidents. A dead client does nothing, and its messages are lost."""
        for at in range(len(state.clients)):
            yield from self.moves(state, at, is_dead=bool(dead >> at & 1))
        for cell, here in enumerate(state.cells):
            if not all(it.is_durable for it in here.records):
                text = "what cell {} has appended is durable"
                yield Step(text, (cell,), self._synced(state, cell))

    def moves(self, state: State, at: int, *, is_dead: bool = False) -> Steps:
        """What happens next to one transaction."""
        client = state.clients[at]
        if not is_dead:
            yield from self._client(state, at, client)
            if client.phase != IDLE:
                yield from self._arrivals(state, at, client)
        if client.start:
            for cell in self.participants(state, at):
                yield from self._outcome(state, at, cell)

    def _client(self, state: State, at: int, client: Client) -> Steps:
        if client.phase == IDLE:
            yield self._first_step(state, at, client)
        elif client.phase == ASKING:
            yield from self._ask(state, at, client)
        elif client.phase == READING:
            yield from self._read(state, at, client)
        elif client.phase == COMMITTING:
            yield from self._report(state, at, client)
        elif self.case.is_endless and self.case.txns[at].kind == PLAIN:
            yield from self._again(state, at)

    def _first_step(self, state: State, at: int, client: Client) -> Step[State]:
        if self.case.txns[at].kind not in OWNERS:
            return self._begin(state, at, client, "T{} begins at {}")
        newest = max(it.fence for it in state.cells)
        asking = client._replace(phase=ASKING, named_after=newest)
        return Step("T{} asks for its early locks", (at,), state.with_client(at, asking))

    def _begin(self, state: State, at: int, client: Client, text: str) -> Step[State]:
        start = client.start or state.clock
        clock = state.clock + (not client.start)
        phase = READING if self.case.txns[at].reads else COMMITTING
        begun = client._replace(phase=phase, start=start)
        return Step(text, (at, start), state.with_client(at, begun)._replace(clock=clock))

    def _read(self, state: State, at: int, client: Client) -> Steps:
        rows = self.case.txns[at].reads
        cell = next(number for number, mask in enumerate(self.masks) if mask & rows)
        saw = self.read(state, at, cell)
        if saw is not None:
            after = state.with_client(at, client._replace(phase=COMMITTING, saw=saw))
            yield Step("T{} reads {} in cell {}", (at, rows_named(rows), cell), after)

    def _again(self, state: State, at: int) -> Steps:
        """A plain writer whose transaction has ended begins another one."""
        if any(it.records[at].phase in (LOCKED, PREPARED) for it in state.cells):
            return
        for cell in range(len(self.masks)):
            state = state.with_record(at, cell, Record())
        yield Step("the client of T{} has another one", (at,), state.with_client(at, Client()))

    def _ask(self, state: State, at: int, client: Client) -> Steps:
        route, place, rules = self.routes[at], client.place, self.rules
        is_last = place == len(route) - 1
        if is_last and not rules.begins_after_grants and not client.start:
            early = client._replace(start=state.clock)
            after = state.with_client(at, early)._replace(clock=state.clock + 1)
            yield Step("T{} begins at {}, before its last grant", (at, state.clock), after)
            return
        said, cell = client.said[place], route[place].cell
        if said != UNSAID:
            yield self._hear(state, at, client, said)
        if rules.answers_ended and self.has_ended(state, at, cell):
            failed = state.with_client(at, client._replace(phase=FAILED))
            yield Step("T{} hears from cell {} that it has ended", (at, cell), failed)

    def _hear(self, state: State, at: int, client: Client, said: int) -> Step[State]:
        txn, cell = self.case.txns[at], self.routes[at][client.place].cell
        client = client._replace(taken=client.taken | said, place=client.place + 1)
        is_enough = txn.kind == SKIP and client.taken.bit_count() >= txn.takes
        if not said and txn.kind != SKIP:
            failed = state.with_client(at, client._replace(phase=FAILED))
            return Step("T{} hears from cell {} that it is blocked", (at, cell), failed)
        if client.place < len(self.routes[at]) and not is_enough:
            text = "T{} hears from cell {}: granted {}"
            return Step(text, (at, cell, rows_named(said)), state.with_client(at, client))
        if (txn.more and self.rules.refuses_second) or not client.taken:
            text = "T{} locks nothing more, and gives up"
            return Step(text, (at,), state.with_client(at, client._replace(phase=FAILED)))
        return self._begin(state, at, client, "T{} has all its early locks, and begins at {}")

    def _report(self, state: State, at: int, client: Client) -> Steps:
        cells = self.participants(state, at)
        theirs = [state.cells[cell].records[at] for cell in cells]
        if client.decided == UNDECIDED:
            if _are_prepared(theirs):
                client = client._replace(decided=max(it.p for it in theirs))
            elif any(it.phase == REFUSED for it in theirs):
                client = client._replace(decided=ABORT)
        if client.decided == ABORT:
            failed = state.with_client(at, client._replace(phase=FAILED))
            yield Step("T{} is reported as aborted", (at,), failed)
        elif client.decided != UNDECIDED:
            done = state.with_client(at, client._replace(phase=DONE))
            yield Step("T{} is reported as committed", (at,), done)

    # ---- what arrives at a cell

    def _arrivals(self, state: State, at: int, client: Client) -> Steps:
        for place, request in enumerate(self.routes[at][: client.place + 1]):
            here = state.cells[request.cell]
            is_there = any((it.at, it.place) == (at, place) for it in here.queue)
            if not is_there and not self.has_ended(state, at, request.cell):
                yield self._acquire(state, at, place, request)
            if self._is_released(state, at, request.cell, client):
                after = self._looked(self.end(state, request.cell, at), request.cell)
                yield Step("T{} releases its locks in cell {}", (at, request.cell), after)
        if client.start and client.phase not in (ASKING, READING):
            for cell in self.participants(state, at):
                if state.cells[cell].records[at].phase == NONE:
                    yield from self._commit(state, at, cell)

    def _is_released(self, state: State, at: int, cell: int, client: Client) -> bool:
        """Return whether a release may arrive, and changes something."""
        # For a bug: a commit that leaves rows out does not end their early locks.
        is_left = client.phase == DONE and not self.rules.commits_locks
        if client.phase != FAILED and not is_left:
            return False
        here = state.cells[cell]
        return any(it.at == at for it in here.queue) or not self.has_ended(state, at, cell)

    def _acquire(self, state: State, at: int, place: int, request: Request) -> Step[State]:
        cell, txn = request.cell, self.case.txns[at]
        details = (cell, at, rows_named(request.rows))
        if txn.kind == SKIP:
            return self._skip(state, at, place, request)
        here, entry = state.cells[cell], Entry(at, place, request.rows)
        after = state.with_cell(cell, here._replace(queue=(*here.queue, entry)))
        after = self.look(after, cell)
        queue = after.cells[cell].queue
        if any((it.at, it.place) == (at, place) and it.granted for it in queue):
            return Step("cell {} grants T{} the rows {}", details, after)
        if txn.kind == NOWAIT and not self.rules.may_wait(txn):
            blocked = self._blocked(state, cell, at, place)
            return Step("cell {} tells T{} that it is blocked, rows {}", details, blocked)
        return Step("cell {} queues T{} for rows {}", details, after)

    def _skip(self, state: State, at: int, place: int, request: Request) -> Step[State]:
        """Take the rows that are free: never a row that an earlier request waits for."""
        cell, txn, here = request.cell, self.case.txns[at], state.cells[request.cell]
        wanted, got = txn.takes - state.clients[at].taken.bit_count(), 0
        index = len(here.queue) if self.rules.skips_closed else 0
        for row in range(len(self.case.cell_of)):
            bit = request.rows & 1 << row
            entry = Entry(at, place, bit)
            if bit and got.bit_count() < wanted and self.is_free(state, cell, entry, bit, index):
                got |= bit
        if not got:
            after = self._blocked(state, cell, at, place)
        else:
            queue = (*here.queue, Entry(at, place, got, got))
            after = state.with_cell(cell, here._replace(queue=queue))
            after = self.answered(after, at, place, got)
        return Step("cell {} lets T{} have {}", (cell, at, rows_named(got)), after)

    def _blocked(self, state: State, cell: int, at: int, place: int) -> State:
        """An answer without rows ends the owner here, so that a late copy takes nothing."""
        after = self.end(state, cell, at, remembers=self.rules.remembers_blocked)
        return self.answered(after, at, place, 0)

    def _commit(self, state: State, at: int, cell: int) -> Steps:
        is_blind = self.case.txns[at].kind == BLIND
        if is_blind and any(it.at == at for it in state.cells[cell].queue):
            return
        if state.clients[at].start <= state.cells[cell].fence:
            lost = self.owned(state, at, cell)
            violation = promises.lost(at, lost, cell)
            after = self.refused(state, at, cell)
            yield Step("cell {} refuses T{}: the fence", (cell, at), after, violation)
            return
        if is_blind and self.rules.blind_queues and self.early(state, at, cell):
            yield self._join(state, at, cell)
            return
        met, rows = self.meeting(state, at, cell)
        if met == STAY:
            return
        if met == TAKE:
            after = state.with_record(at, cell, Record(LOCKED))
            violation = promises.overtaken(self, state, at, cell)
            yield Step("T{} has its commit locks in cell {}", (at, cell), after, violation)
            return
        lost = rows & self.owned(state, at, cell)
        details = (cell, at, rows_named(rows))
        after = self.refused(state, at, cell)
        yield Step("cell {} refuses T{}: rows {}", details, after, promises.lost(at, lost, cell))

    def _join(self, state: State, at: int, cell: int) -> Step[State]:
        """A blind transaction waits in the queue. It holds nothing."""
        here = state.cells[cell]
        rows = self.exclusive(state, at) & self.masks[cell]
        queue = (*here.queue, Entry(at, 0, rows))
        after = self.look(state.with_cell(cell, here._replace(queue=queue)), cell)
        return Step("T{} queues in cell {}, blind", (at, cell), after)

    # ---- outcomes in a cell

    def _outcome(self, state: State, at: int, cell: int) -> Steps:
        record, decided = state.cells[cell].records[at], state.clients[at].decided
        if decided == ABORT and record.phase in (LOCKED, PREPARED):
            yield Step("T{} aborts in cell {}", (at, cell), self.refused(state, at, cell))
        elif record.phase == LOCKED:
            yield self._stamp(state, at, cell, record)
        elif record.phase == PREPARED and decided != UNDECIDED:
            after = self._applied(state, at, cell, record._replace(phase=COMMITTED, c=decided))
            yield Step("T{} commits in cell {}", (at, cell), after)

    def _stamp(self, state: State, at: int, cell: int, record: Record) -> Step[State]:
        p = state.clock
        later = state._replace(clock=p + 1)
        if len(self.participants(state, at)) == 1:
            after = self._applied(later, at, cell, record._replace(phase=COMMITTED, c=p))
            return Step("T{} commits at {} in cell {}", (at, p, cell), after)
        prepared = record._replace(phase=PREPARED, p=p, is_durable=not self.case.syncs)
        after = later.with_record(at, cell, prepared)
        if self.rules.hands_over == PREPARED:
            after = self.look(self.end(after, cell, at), cell)
        return Step("T{} is prepared at {} in cell {}", (at, p, cell), after)

    def _applied(self, state: State, at: int, cell: int, record: Record) -> State:
        """The owner's early locks end in the step that applies its commit."""
        record = record._replace(is_durable=not self.case.syncs)
        after = self.end(state.with_record(at, cell, record), cell, at)
        if record.is_durable:
            after = _decided(after, at, record)
        return self.look(after, cell) if self.rules.wakes_at_outcome else after

    def _synced(self, state: State, cell: int) -> State:
        """All that the cell has appended is durable, in the order of its log."""
        for at, record in enumerate(state.cells[cell].records):
            if not record.is_durable:
                state = state.with_record(at, cell, record._replace(is_durable=True))
                state = _decided(state, at, record)
        return state

    def _looked(self, state: State, cell: int) -> State:
        return self.look(state, cell) if self.rules.wakes_at_end else state

    # ---- accidents, and what time does

    def accidents(self, state: State) -> Steps:
        case = self.case
        for at, client in enumerate(state.clients):
            if case.leases_end:
                yield from self.lease_ends(state, at)
            if case.recovers:
                yield from self.recovery(state, at)
            if case.may_withdraw and client.phase == ASKING:
                failed = state.with_client(at, client._replace(phase=FAILED))
                yield Step("T{} stops waiting for its locks", (at,), failed)
        for cell in range(len(self.masks)):
            if state.crashes < case.crashes_max:
                yield Step("cell {} restarts", (cell,), self._restarted(state, cell))
            if state.unmounts < case.unmounts_max:
                yield from self._unmount(state, cell)

    def lease_ends(self, state: State, at: int) -> Steps:
        """The lease of an owner or of a request ends, or the wait of a blind transaction."""
        if not self.rules.has_lease:
            return
        for cell, here in enumerate(state.cells):
            if all(it.at != at for it in here.queue):
                continue
            after = self.end(state, cell, at, remembers=self.rules.remembers_ended)
            record = here.records[at]
            if self.case.txns[at].kind == BLIND:
                after = after.with_record(at, cell, Record(REFUSED))
            elif record.phase == LOCKED and not self.rules.lease_keeps_commit:
                after = after.with_record(at, cell, record._replace(is_held=False))
            after = self._looked(after, cell)
            yield Step("the lease of T{} in cell {} ends", (at, cell), after)

    def recovery(self, state: State, at: int) -> Steps:
        """A prepared participant asks the coordinator, which asks all of them."""
        cells = self.participants(state, at) if state.clients[at].start else []
        theirs = [state.cells[cell].records[at] for cell in cells]
        client = state.clients[at]
        if client.decided != UNDECIDED or not any(_are_prepared([it]) for it in theirs):
            return
        if _are_prepared(theirs):
            c = max(it.p for it in theirs)
            after = state.with_client(at, client._replace(decided=c))
            yield Step("the coordinator of T{} commits at {}", (at, c), after)
            return
        after = state.with_client(at, client._replace(decided=ABORT))
        for cell, record in zip(cells, theirs, strict=True):
            if record.phase != PREPARED:
                after = self.refused(after, at, cell)
        yield Step("the coordinator of T{} aborts", (at,), after)

    def _restarted(self, state: State, cell: int) -> State:
        """The queue, locks without a prepared record, and refusals are gone."""
        here = state.cells[cell]
        after = Cell(state.clock, (), 0, tuple(_replayed(it) for it in here.records))
        return state.with_cell(cell, after)._replace(
            clock=state.clock + 1, crashes=state.crashes + 1
        )

    def _unmount(self, state: State, cell: int) -> Steps:
        """An unmount waits for commits. The mount that follows takes a fence."""
        here = state.cells[cell]
        if any(it.phase in (LOCKED, PREPARED) for it in here.records):
            return
        after = here._replace(fence=state.clock)
        if self.rules.unmount_ends:
            after = after._replace(queue=())
        unmounted = state.with_cell(cell, after)._replace(
            clock=state.clock + 1, unmounts=state.unmounts + 1
        )
        yield Step("the tablet of cell {} is unmounted and mounted", (cell,), unmounted)


def _are_prepared(records: list[Record]) -> bool:
    """Return whether all are prepared, and have said so: what they wrote is durable."""
    return all(it.phase == PREPARED and it.is_durable for it in records)


def _decided(state: State, at: int, record: Record) -> State:
    """A commit of one cell is decided when its record is durable."""
    if record.phase != COMMITTED or record.p:
        return state
    return state.with_client(at, state.clients[at]._replace(decided=record.c))


def _replayed(record: Record) -> Record:
    """Return what a restart finds in the log."""
    if record.phase not in (PREPARED, COMMITTED):
        return Record()
    if record.is_durable:
        return record
    is_outcome = record.phase == COMMITTED and record.p
    return record._replace(phase=PREPARED, c=0, is_durable=True) if is_outcome else Record()
