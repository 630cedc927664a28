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
    "NOCONFLICT",
    "RWLOCK",
    "ATOMICITY",
    "DURABILITY",
    "GHOST",
    "FALSE-CONFLICT",
    "INVARIANT",
    "LIVENESS",
    "CRASH",
]
"""What each means:

- UNIQUE: no timestamp is given out twice, no two transactions commit at one
- MONOTONIC: a timestamp asked for after another was received is larger
- ORDER: a transaction commits above its start
- SESSION: a session starts above its last commit
- EXT: a read at T is the newest commit at or below T, a scan is exactly the rows of its range
- LATEST: a read of the last commit is no older than what was acknowledged before it was asked
- NOCONFLICT: nobody committed to a written or locked row between start and commit
- RWLOCK: nobody writes a row below the commit of a later strong reader
- ATOMICITY: all writes of a transaction are there at one timestamp, or none is
- DURABILITY: what was acknowledged is in the dump
- GHOST: what is in the dump was written by exactly one transaction that did not fail
- FALSE-CONFLICT: a refusal names a winner that really held or wrote the row
- INVARIANT: the workload's own sums and shapes hold
- LIVENESS: once faults end, all transactions end, no lock stays, every table takes writes
- CRASH: a core never stops by an assertion or a surprise
"""


class Violation(NamedTuple):
    promise: Promise
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"
