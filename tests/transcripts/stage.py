"""Cells on a stage: carries out the commands of a transcript, and writes down the effects.

Owns: the commands, and how effects are written. Timestamps have names: `T` as the command `begin T`
says, and `T@1` for the timestamp that cell 1 got for T. Heartbeats, and what cells do for their
logs and chunks, are no part of the commit protocol and left out.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dodona.types import CellId, Timestamp, TransactionId
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.records import (
    AbortDecided,
    AllAcknowledged,
    CommitDecided,
    CommittedHere,
    PreparedHere,
    WatermarkRaised,
)
from dodona_wire.cores.effects import Append, AskTimestamps, ReplyAtOnce, ReplyTo, SendToCell
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    AskOutcome,
    CommitOne,
    Decide,
    LookupReply,
    PeekOutcome,
    Prepare,
    RowLock,
)
from unit.tablets.cells import Bench, changes, key, put

OF_THE_PROTOCOL: Final = (
    CommittedHere,
    PreparedHere,
    CommitDecided,
    AbortDecided,
    AllAcknowledged,
    WatermarkRaised,
)
"""Records of the log that a transcript shows."""
LEFT_OUT: Final = frozenset(("source", "modifications", "participants", "message"))
"""Fields that say what the line says already, or what is long."""
TIMES: Final = ("winner", "winner_timestamp")
SHOWN: Final = ("key", *TIMES)
"""Attributes of errors that a transcript shows. The others name the table and the lock."""
LIMITS: Final = CellLimits()


class Stage(Bench):
    """A bench that writes down the effects of its cells, and acts only on commands."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._lines: list[str] | None = None
        """None before the cells are open: their start is no part of a transcript."""
        super().__init__(0, LIMITS)

    def run(self, command: str) -> list[str]:
        """Carry out one command. Returns the lines of its effects. Raises ValueError if there is
        no such command."""
        for pattern, run in COMMANDS:
            if found := re.fullmatch(pattern, command):
                if self._lines is not None:
                    self._lines = []
                run(self, found)
                self._answer_others()
                return self._lines or []
        raise ValueError(f"no command of a transcript: {command!r}")

    def note(self, cell: CellId, effect: Any) -> None:
        if self._lines is not None and (words := self._words_of(effect)):
            self._lines.append(f"{cell} {words}")

    def _answer_others(self) -> None:
        """Answer what cells ask the oracle for themselves: fences, and what time it is."""
        while others := [it for it in self.asked if it[1] not in self.names]:
            for cell, token in others:
                self.asked.remove((cell, token))
                self.nodes[cell].handle_timestamp(token, self.timestamp(), self.now)
                self.carry_out(cell)

    # Commands

    def open(self, found: re.Match[str]) -> None:
        for index in range(int(found[1])):
            self.add(CellId(index))
        self.settle()
        self._lines = []

    def begin_named(self, found: re.Match[str]) -> None:
        self.names[self.begin()] = found[1]

    def send(self, found: re.Match[str]) -> None:
        """A request of a client to a cell."""
        verb, name, cell, rest = found.groups()
        self.ask(self._request(verb, self._id(name), rest or ""), int(cell))

    def _request(self, verb: str, transaction: TransactionId, rest: str) -> Any:
        cells = tuple(sorted(self.nodes))
        match verb:
            case "prepare":
                return Prepare(transaction, cells, (self._changes(rest),))
            case "commit-one":
                return CommitOne(transaction, (self._changes(rest),))
            case "commit-blind":
                return CommitOne(transaction, (self._changes(rest),), is_blind=True)
            case "decide":
                at = None if rest.startswith("abort") else Timestamp(self._id(rest.split()[1]))
                return Decide(transaction, cells, at, is_proved=rest.endswith("proved"))
            case "outcome":
                return AskOutcome(transaction)
            case _:
                return PeekOutcome(transaction)

    def _changes(self, text: str) -> Any:
        """`row 1 = 10`, or `lock row 1`."""
        found = re.fullmatch(r"(?:lock )?row (\d+)(?: = (\d+))?", text)
        if found is None:
            raise ValueError(f"no change of a row: {text!r}")
        number, value = found.groups()
        if value is None:
            return changes(locks=(RowLock(key(int(number)), 1, "shared_strong"),))
        return changes(put(int(number), int(value)))

    def look(self, found: re.Match[str]) -> None:
        number, cell, name = found.groups()
        at = {} if name is None else {"at": Timestamp(self._id(name))}
        self.lookup(int(number), cell=int(cell), **at)

    def answer_one(self, found: re.Match[str]) -> None:
        cell = CellId(int(found[1]))
        _, token = self.asked.pop(_first(self.asked, cell))
        issued = self.timestamp()
        self.names[issued] = f"{self.names[token]}@{cell}"
        self.nodes[cell].handle_timestamp(token, issued, self.now)
        self.carry_out(cell)

    def deliver_one(self, found: re.Match[str]) -> None:
        """The oldest message to a cell: deliver it, a copy of it, or lose it."""
        verb, cell = found[1], CellId(int(found[2]))
        place = _first(self.in_flight, cell)
        body = self.in_flight[place][1] if verb == "copy" else self.in_flight.pop(place)[1]
        if verb != "lose":
            self.nodes[cell].handle_cell_message(body, self.now)
            self.carry_out(cell)

    def restart(self, found: re.Match[str]) -> None:
        """A crash: what is not in the log is lost, and so is what was asked for."""
        cell = CellId(int(found[1]))
        self.asked = [it for it in self.asked if it[0] != cell]
        self.start(cell)

    def _id(self, name: str) -> TransactionId:
        known = {it: number for number, it in self.names.items()}
        if name not in known:
            raise ValueError(f"nothing is called {name!r}")
        return TransactionId(known[name])

    # How effects are written

    def _words_of(self, effect: Any) -> str:
        match effect:
            case Append(record=record) if isinstance(record, OF_THE_PROTOCOL):
                return f"appends {self._words(record)}"
            case AskTimestamps(token=token) if token in self.names:
                return f"asks the oracle for {self.names[token]}"
            case SendToCell(cell=cell, body=body):
                return f"tells {cell}: {self._words(body)}"
            case ReplyTo(body=body) | ReplyAtOnce(body=body):
                return f"answers {self._words(body)}"
        return ""

    def _words(self, body: Any) -> str:
        if isinstance(body, LookupReply):
            return f"rows {[it and it[0] for it in body.rows]}"
        kind = body.kind if isinstance(body, Failure) else type(body).__name__
        fields = msgspec.structs.fields(type(body))
        values = [
            self._value(it.name, getattr(body, it.name))
            for it in fields
            if it.name not in LEFT_OUT
            and it.name != "kind"
            and (it.required or getattr(body, it.name) != it.default)
        ]
        return " ".join([kind, *values])

    def _value(self, name: str, value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(
                f"{name} {it}" if name not in TIMES else f"{name} {self.names[it]}"
                for name, it in value.items()
                if name in SHOWN
            )
        if isinstance(value, int) and value in self.names:
            return self.names[value]
        return str(value) if name in ("state", "coordinator") else f"{name} {value}"


def _first(waiting: list[tuple[CellId, Any]], cell: CellId) -> int:
    """Return the place of the oldest for a cell. Raises ValueError if there is none."""
    cells = [it for it, _ in waiting]
    if cell not in cells:
        raise ValueError(f"nothing waits for cell {cell}")
    return cells.index(cell)


COMMANDS: Final[list[tuple[str, Callable[[Stage, re.Match[str]], None]]]] = [
    (r"open (\d+) cells?", Stage.open),
    (r"begin (\w+)", Stage.begin_named),
    (r"(prepare|commit-one|commit-blind) (\w+) at (\d): (.*)", Stage.send),
    (r"(decide) (\w+) at (\d): (commit \S+|abort|abort, proved)", Stage.send),
    (r"(outcome|peek) (\w+) at (\d)()", Stage.send),
    (r"read row (\d+) at (\d)(?: as of (\S+))?", Stage.look),
    (r"the oracle answers (\d)", Stage.answer_one),
    (r"(deliver|copy|lose) to (\d)", Stage.deliver_one),
    (r"deliver all", lambda stage, _: stage.deliver()),
    (r"lose all", lambda stage, _: stage.in_flight.clear()),
    (r"wait (\d+) s", lambda stage, found: stage.pass_time(int(found[1]))),
    (r"crash (\d)", Stage.restart),
]
