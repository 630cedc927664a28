"""A broken promise, named and described for a reader.

Owns: the names of the promises. Must not import anything of Dodona.
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
    "LOAD",
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
"""What each means:

- UNIQUE: no timestamp is given out twice, no two transactions commit at one
- MONOTONIC: a timestamp asked for after another was received is larger
- ORDER: a transaction commits above its start
- SESSION: a session starts above its last commit, and sees what it did before
- EXT: a read at T is the newest commit at or below T, a scan is exactly the rows of its range
- LATEST: a read of the last commit is no older than what was acknowledged before it was asked
- OUTCOME: whoever asks later what became of a transaction is told what the tables show
- NOCONFLICT: nobody committed to a written or locked row between start and commit; shared writes
  go together
- RWLOCK: nobody writes a row below the commit of a later strong reader
- LOAD: a bulk load inserts what is not there, updates what is, and leaves no row but its own where
  it erases
- ATOMICITY: all writes of a transaction are there at one timestamp, or none is
- DURABILITY: what was acknowledged is in the dump
- GHOST: what is in the dump was written by exactly one transaction that did not fail
- FALSE-CONFLICT: a refusal names a winner that really held or wrote the row
- FALSE-REFUSAL: a write is refused for its clock only if the clocks really differ so much
- STAMP: without atomicity, stamps of a row rise in the order of its writes, a caller is told the
  largest, and none is far ahead of the oracle
- HOLE: of answers given from memory a crash takes back at most the last so many milliseconds, and
  no earlier one without all later ones
- FEED: who reads on and on what has changed is given every version of the dump once
- INVARIANT: the workload's own sums and shapes hold
- LIVENESS: once faults end, all transactions end, no lock stays, every table takes writes
- CRASH: a core never stops by an assertion or a surprise
- DETERMINISM: the same seed gives the same history, in whatever process

Of lists that transactions append to:

- INTERNAL: a transaction sees one state of a list, without its own appends
- DUPLICATE: an element is in its list once
- GARBAGE: an element was appended by somebody
- INCOMPATIBLE-ORDER: of two lists seen at one key, one begins with the other
- LOST-APPEND: what was acknowledged is in the list by the time that somebody looks later
- G1A: nobody sees what a failed transaction appended
- G1B: nobody sees a part of what one transaction appended to a list

Of cycles, in which each transaction must have come before the next (ww: wrote behind what it wrote,
wr: saw what it wrote, rw: wrote behind what it saw), by the weakest thing that makes one:

- G0: transactions write over each other in one order everywhere
- G1C: nobody sees what was written after itself
- G-SINGLE: nobody sees one thing from before a commit and another from after it, nor writes over
  what it did not see (read skew and lost update: one rw)
- G-NONADJACENT: all see commits in one order (long fork: several rw, none next to another)
- G2: where everything read is locked, all is as if done one at a time (write skew: adjacent rw)
- REAL-TIME: a transaction sees what was acknowledged before it began
"""


class Violation(NamedTuple):
    promise: Promise
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"
