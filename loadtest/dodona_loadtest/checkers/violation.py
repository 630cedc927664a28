"""A broken promise, with a name and a text for a reader.

Owns: the names of the promises. Must not import: anything of Dodona.
"""

from typing import Literal, NamedTuple

Promise = Literal[
    "UNIQUE",
    "MONOTONIC",
    "ORDER",
    "SESSION",
    "EXT",
    "LATEST",
    "OUTCOME",
    "NOCONFLICT",
    "RWLOCK",
    "VALID",
    "LOAD",
    "CONDITION",
    "MUTEX",
    "FIFO",
    "EXCLUSION",
    "NOLOSE",
    "ATOMICITY",
    "DURABILITY",
    "GHOST",
    "FALSE-CONFLICT",
    "FALSE-REFUSAL",
    "STAMP",
    "HOLE",
    "FEED",
    "INVARIANT",
    "LIVENESS",
    "CRASH",
    "INTERNAL",
    "DUPLICATE",
    "GARBAGE",
    "INCOMPATIBLE-ORDER",
    "LOST-APPEND",
    "G0",
    "G1A",
    "G1B",
    "G1C",
    "G-SINGLE",
    "G-NONADJACENT",
    "G2",
    "REAL-TIME",
    "DETERMINISM",
]
"""What each promise means:
- UNIQUE: no timestamp is given out twice, and no two transactions commit at one
- MONOTONIC: a timestamp that is asked for after another was received is larger
- ORDER: a transaction commits above its start
- SESSION: a session starts above its last commit, and sees what it did before
- EXT: a read at T is the newest commit at or below T, and a scan is exactly the rows of its range
- LATEST: a read of the last commit is no older than commits acknowledged before it was asked for
- OUTCOME: a later question for an outcome gets the answer that the tables show
- NOCONFLICT: no transaction commits to a written or locked row between start and commit. Shared
  writes go together.
- RWLOCK: no transaction writes a row below the commit of a later strong reader
- VALID: what a serializable transaction has read is unchanged just below its commit timestamp
- LOAD: a bulk load inserts absent rows, updates existing rows, and leaves only its own rows in an
  erased range
- CONDITION: what a commit requires of a row holds at its commit timestamp
- MUTEX: two owners of early locks never have one row at a time, and no transaction holds a row that
  another one has locked early. An owner whose locks have ended never gets them again.
- FIFO: of two requests for one row in a cell, the later one gets its early locks only after the
  earlier one got them or ended. The first one gets them in the step that frees its rows.
- EXCLUSION: of two transactions that locked one row early and committed, one starts above the
  commit of the other
- NOLOSE: an owner that has kept its early lock of a row is not refused by a conflict on this row,
  except with a transaction that only keeps the row as it is
- ATOMICITY: all writes of a transaction are there at one timestamp, or none is
- DURABILITY: each acknowledged write is in the dump
- GHOST: exactly one transaction, which did not fail, wrote each version in the dump
- FALSE-CONFLICT: a refusal names a winner that really held or wrote the row
- FALSE-REFUSAL: a write is refused for its clock only if the clocks really differ so much
- STAMP: without atomicity, timestamps of a row rise in the order of its writes. A caller gets the
  largest. None is far ahead of the oracle.
- HOLE: a crash takes back at most the last so many milliseconds of answers from memory, and no
  earlier one without all later ones
- FEED: a reader of the change feed gets every version of the dump once
- INVARIANT: the workload's own sums and shapes hold
- LIVENESS: once faults end, all transactions end, no lock stays, and every table takes writes
- CRASH: a core never stops by an assertion or an unexpected error
- DETERMINISM: the same seed gives the same history, in any process

Of lists that transactions append to:
- INTERNAL: a transaction sees one state of a list, without its own appends
- DUPLICATE: an element is in its list once
- GARBAGE: a transaction appended each element
- INCOMPATIBLE-ORDER: of two lists seen at one key, one begins with the other
- LOST-APPEND: an acknowledged append is in the list when a reader looks later
- G1A: no transaction sees the appends of a failed one
- G1B: no transaction sees only a part of another's appends to a list

Of cycles, in which each transaction must have come before the next. The name of a cycle is that of
its weakest dependency. (ww: the next one wrote behind the write of the one before. wr: the next one
saw that write. rw: the next one wrote behind what the one before saw.)
- G0: transactions write over each other in one order everywhere
- G1C: no transaction sees writes that come after itself
- G-SINGLE: no transaction sees one list from before a commit and another from after it (read skew).
  None writes over what it did not see (lost update). One rw.
- G-NONADJACENT: all see commits in one order (long fork: several rw, none next to another)
- G2: if all reads are locked, the result is that of one transaction after another (write skew:
  adjacent rw)
- REAL-TIME: a transaction sees everything that was acknowledged before it began
"""


class Violation(NamedTuple):
    promise: Promise
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"
