"""The model: transactions with conditions, in one cell or two, with restarts.

Owns: the steps, and the promises:
- CONDITION: what a condition asks for holds at the commit timestamp;
- TRUE: a transaction that was reported as aborted is not committed;
- FRESH: a condition is never refused because of a state that is older than commits that were
  reported before the transaction began.
"""

from collections.abc import Iterator
from typing import Final

from prerequisite_model.rules import Rules
from prerequisite_model.state import (
    ABORT,
    ABSENT,
    COMMITTED,
    FAILED,
    LATEST,
    LOCKED,
    NONE,
    OK,
    PREPARED,
    REFUSED,
    SILENT,
    UNDECIDED,
    UNMET,
    Case,
    Life,
    Place,
    State,
    There,
    Version,
    Wish,
)
from replication_model.step import Step

GROUPS: Final = 2
DESIGNED: Final = Rules()
WAIT, LOSE, TAKE = "wait", "lose", "take"


class PrerequisiteModel:
    """One configuration under some rules."""

    def __init__(self, case: Case, rules: Rules | None = None) -> None:
        self.case = case
        self.rules = rules or Rules()
        self.title = case.title
        self.cells_of = tuple(self._cells(at) for at in range(len(case.txns)))

    def _cells(self, at: int) -> tuple[int, ...]:
        txn = self.case.txns[at]
        rows = {place.row for place, _ in txn.writes}
        if self.rules.asks_cells:
            rows |= {wish.row for wish in txn.wishes}
        return tuple(sorted({self.case.cell_of[row] for row in rows}))

    # ---- what the search needs

    def first(self) -> State:
        case = self.case
        versions = tuple(
            Version(1, Place(row), value, -1) for row, value in enumerate(case.first) if value
        )
        count = max(case.cell_of) + 1
        life = Life(cells=(There(),) * count)
        return State(2, versions, (life,) * len(case.txns), (0,) * count)

    def pack(self, state: State) -> State:
        return state

    def unpack(self, packed: State) -> State:
        return packed

    def steps(self, state: State) -> Iterator[Step[State]]:
        for at, life in enumerate(state.lives):
            if not life.start:
                yield from self._begin(state, at)
                continue
            for cell in self.cells_of[at]:
                yield from self._in_cell(state, at, cell)
            yield from self._client(state, at)
        if state.crashes < self.case.crashes_max:
            for cell in range(len(state.fences)):
                yield Step("cell {} restarts", (cell,), self._restarted(state, cell))

    # ---- the client

    def _begin(self, state: State, at: int) -> Iterator[Step[State]]:
        txn = self.case.txns[at]
        if txn.after is not None and state.lives[txn.after].reported != OK:
            return
        known = tuple(self._reported(state, row) for row in range(len(self.case.first)))
        life = state.lives[at]._replace(start=state.clock, known=known)
        after = state.with_life(at, life)._replace(clock=state.clock + 1)
        if not self.rules.asks_cells and not self._is_met_at(state, at, state.clock):
            return  # the client sees that the condition does not hold
        yield Step("T{} begins at {}", (at, state.clock), after)

    def _reported(self, state: State, row: int) -> int:
        """Return the newest commit of a row that a client has reported."""
        found = [it.at for it in state.versions if it.place.row == row and it.by < 0]
        for at, life in enumerate(state.lives):
            if life.reported == OK and any(
                place.row == row for place, _ in self.case.txns[at].writes
            ):
                found.append(life.decided)
        return max(found, default=0)

    def _is_met_at(self, state: State, at: int, timestamp: int) -> bool:
        below = [it for it in state.versions if it.at <= timestamp]
        return all(it.value == _value(below, it, timestamp) for it in self.case.txns[at].wishes)

    def _client(self, state: State, at: int) -> Iterator[Step[State]]:
        life, cells = state.lives[at], self.cells_of[at]
        theirs = [life.cells[cell] for cell in cells]
        if life.decided == UNDECIDED and len(cells) > 1:
            if all(it.phase == PREPARED for it in theirs):
                decided = life._replace(decided=max(it.p for it in theirs), reported=OK)
                yield Step("T{} is reported as committed", (at,), state.with_life(at, decided))
            elif any(it.phase == REFUSED for it in theirs):
                decided = life._replace(decided=ABORT, reported=_refusal(theirs))
                yield Step("T{} is reported as aborted", (at,), state.with_life(at, decided))
        elif len(cells) == 1 and life.reported == SILENT:
            (there,) = theirs
            if there.phase == COMMITTED:
                reported = life._replace(reported=OK)
                yield Step("T{} is reported as committed", (at,), state.with_life(at, reported))
            elif there.phase == REFUSED:
                reported = life._replace(reported=_refusal(theirs))
                yield Step("T{} is reported as aborted", (at,), state.with_life(at, reported))

    # ---- a cell

    def _in_cell(self, state: State, at: int, cell: int) -> Iterator[Step[State]]:
        life, there = state.lives[at], state.lives[at].cells[cell]
        if there.phase == NONE:
            yield from self._arrive(state, at, cell)
        elif there.phase == LOCKED:
            yield from self._stamp(state, at, cell)
        elif there.phase == PREPARED and life.decided not in (UNDECIDED, ABORT):
            text = "T{} commits in cell {}"
            yield Step(text, (at, cell), self._applied(state, at, cell, life.decided))
        elif there.phase == PREPARED and life.decided == ABORT:
            after = state.with_cell(at, cell, there._replace(phase=REFUSED))
            yield Step("T{} aborts in cell {}", (at, cell), after)
        elif there.phase == COMMITTED and self.rules.checks_repeats:
            yield from self._repeat(state, at, cell)

    def _repeat(self, state: State, at: int, cell: int) -> Iterator[Step[State]]:
        """The cell checks a request again that it has carried out."""
        life = state.lives[at]
        if life.reported == SILENT and not self._is_met(state, at, cell):
            after = state.with_life(at, life._replace(reported=UNMET))
            yield Step("the request of T{} comes once more to cell {}", (at, cell), after)

    def _arrive(self, state: State, at: int, cell: int) -> Iterator[Step[State]]:
        life, there = state.lives[at], state.lives[at].cells[cell]
        if life.decided == ABORT or life.start <= state.fences[cell]:
            after = state.with_cell(at, cell, there._replace(phase=REFUSED))
            yield Step("cell {} refuses T{}, which is too old", (cell, at), after)
            return
        wishes = self._wishes(at, cell)
        if wishes and not self.rules.checks_in_one_step and not there.is_checked:
            if self._is_met(state, at, cell):
                after = state.with_cell(at, cell, there._replace(is_checked=True))
                yield Step("cell {} checks the conditions of T{}", (cell, at), after)
            return
        meeting = self._meeting(state, at, cell)
        if meeting == WAIT:
            return
        is_met = there.is_checked or self._is_met(state, at, cell)
        is_written = not self._is_blind(at) and self._is_written(state, at, cell)
        if meeting == LOSE or not is_met or is_written:
            is_unmet = meeting == TAKE and not is_met
            refused = there._replace(phase=REFUSED, is_unmet=is_unmet)
            violation = self._stale(state, at, cell) if is_unmet else None
            after = state.with_cell(at, cell, refused)
            yield Step("cell {} refuses T{}", (cell, at), after, violation)
            return
        after = state.with_cell(at, cell, There(LOCKED))
        yield Step("T{} has its locks in cell {}", (at, cell), after)

    def _stamp(self, state: State, at: int, cell: int) -> Iterator[Step[State]]:
        p = state.clock
        later = state._replace(clock=p + 1)
        if len(self.cells_of[at]) == 1:
            life = later.lives[at]._replace(decided=p)
            after = self._applied(later.with_life(at, life), at, cell, p)
            yield Step("T{} commits at {}", (at, p), after)
        else:
            is_held = self.rules.keeps_until_outcome
            there = There(PREPARED, p, is_held=is_held)
            text = "T{} is prepared at {} in cell {}"
            yield Step(text, (at, p, cell), later.with_cell(at, cell, there))

    def _applied(self, state: State, at: int, cell: int, c: int) -> State:
        made = tuple(
            Version(c, place, value, at)
            for place, value in self.case.txns[at].writes
            if self.case.cell_of[place.row] == cell
        )
        versions = tuple(sorted((*state.versions, *made)))
        there = There(COMMITTED, c)
        return state._replace(versions=versions).with_cell(at, cell, there)

    def _restarted(self, state: State, cell: int) -> State:
        fences = (*state.fences[:cell], state.clock, *state.fences[cell + 1 :])
        after = state._replace(fences=fences, clock=state.clock + 1, crashes=state.crashes + 1)
        for at, life in enumerate(state.lives):
            there = life.cells[cell]
            if there.phase == LOCKED or (there.phase == REFUSED and len(self.cells_of[at]) == 1):
                after = after.with_cell(at, cell, There())
            elif there.phase == PREPARED and not self.rules.keeps_over_restart:
                after = after.with_cell(at, cell, there._replace(is_held=False))
        return after

    # ---- locks and conditions

    def _wishes(self, at: int, cell: int) -> list[Wish]:
        if not self.rules.asks_cells:
            return []
        return [it for it in self.case.txns[at].wishes if self.case.cell_of[it.row] == cell]

    def _is_blind(self, at: int) -> bool:
        return self.case.txns[at].is_blind and len(self.cells_of[at]) == 1

    def _start(self, state: State, at: int) -> int:
        return LATEST if self._is_blind(at) else state.lives[at].start

    def _writes(self, at: int, cell: int) -> set[Place]:
        places = (place for place, _ in self.case.txns[at].writes)
        return {it for it in places if self.case.cell_of[it.row] == cell}

    def _held(self, at: int, cell: int) -> set[Place]:
        """Return what its conditions lock."""
        txn, rules = self.case.txns[at], self.rules
        return {
            Place(wish.row, group)
            for wish in self._wishes(at, cell)
            for group in rules.locked_groups(txn, wish, GROUPS)
        }

    def _watched(self, state: State, at: int, cell: int) -> set[Place]:
        """Return what its conditions lock, and what can create their rows."""
        watched = self._held(at, cell)
        there = {it.place.row for it in state.versions}
        for wish in self._wishes(at, cell) if self.rules.waits_for_creators else ():
            if wish.row not in there:
                watched |= {Place(wish.row, group) for group in range(GROUPS)}
        return watched

    def _meeting(self, state: State, at: int, cell: int) -> str:
        """Return whether the transaction takes its locks, waits for another one, or loses."""
        start, met = self._start(state, at), TAKE
        mine, wished = self._writes(at, cell), self._watched(state, at, cell)
        for other, life in enumerate(state.lives):
            there = life.cells[cell]
            if other == at or there.phase not in (LOCKED, PREPARED):
                continue
            theirs = self._writes(other, cell)
            held = self._held(other, cell) if there.is_held else set()
            is_wished = bool(wished & theirs) and not self.rules.may_pass(there, start)
            if not (mine & (theirs | held) or is_wished):
                continue
            if (there.phase == PREPARED and there.p < start) or start == LATEST:
                met = WAIT if met == TAKE else met
            else:
                met = LOSE
        return met

    def _is_written(self, state: State, at: int, cell: int) -> bool:
        start, mine = state.lives[at].start, self._writes(at, cell)
        return any(it.at > start and it.place in mine for it in state.versions)

    def _is_met(self, state: State, at: int, cell: int) -> bool:
        start = self._start(state, at)
        away = self.case.in_chunks
        return all(
            self.rules.holds(it, self.rules.seen(state.versions, start, it, away))
            for it in self._wishes(at, cell)
        )

    def _stale(self, state: State, at: int, cell: int) -> str | None:
        """Return a violation of FRESH."""
        life = state.lives[at]
        for wish in self._wishes(at, cell):
            seen = self.rules.seen(state.versions, self._start(state, at), wish, False)
            if not self.rules.holds(wish, seen) and life.known[wish.row] > (seen.at if seen else 0):
                return f"FRESH: T{at} saw row {wish.row} before a commit that was reported"
        return None

    # ---- promises

    def violation(self, state: State) -> str | None:
        for at, life in enumerate(state.lives):
            if life.decided > UNDECIDED and life.reported in (FAILED, UNMET):
                return f"TRUE: T{at} was reported as aborted, and is committed"
        if all(it.phase != PREPARED for life in state.lives for it in life.cells):
            return self._unmet(state)
        return None

    def _unmet(self, state: State) -> str | None:
        for at, life in enumerate(state.lives):
            if life.decided <= UNDECIDED:
                continue
            others = [it for it in state.versions if it.by != at]
            for wish in self.case.txns[at].wishes:
                if _value(others, wish, life.decided) != wish.value:
                    return f"CONDITION: row {wish.row} was another at the commit of T{at}"
        return None


def _value(versions: list[Version], wish: Wish, timestamp: int) -> int:
    below = [it for it in versions if it.at <= timestamp]
    seen = DESIGNED.seen(below, timestamp, wish, False)
    return ABSENT if seen is None else seen.value


def _refusal(theirs: list[There]) -> str:
    return UNMET if any(it.is_unmet for it in theirs) else FAILED
