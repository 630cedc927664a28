"""What the map of the cluster shows of log replicas: which logs each has a copy of. Pure.

Owns: how the reports of all cells are joined into one line for each replica.
"""

from typing import Final, NamedTuple

from dodona_gateway.core.console.server_pages import ReportedCluster, Server
from dodona_wire.cores.copies import LEARNER, MEMBER, ReplicaState
from dodona_wire.types import CellId

REPLICAS_MAX: Final = 256
"""The largest number of log replicas that are asked and shown."""
ADDRESS_MARK: Final = "://"
"""Only an address has it. A member that was never met is named by its id."""


class ReplicaLine(NamedTuple):
    """One log replica."""

    server: Server
    member_of: tuple[CellId, ...]
    """The cells whose logs count its copy."""
    learner_of: tuple[CellId, ...]
    """The cells whose logs are being copied to it."""
    lag_entries: int
    """The largest number of entries that it lacks of one of these logs."""
    lag_us: int
    """The longest time that an entry has waited for it."""


def addresses_of(reported: ReportedCluster) -> tuple[str, ...]:
    """Return the addresses of all replicas that cells report, each once."""
    found = [place.address for _, place in _states(reported) if ADDRESS_MARK in place.address]
    return tuple(dict.fromkeys(found))[:REPLICAS_MAX]


def replica_lines(reported: ReportedCluster) -> tuple[ReplicaLine, ...]:
    """Return one line for each replica."""
    return tuple([_line(it, reported) for it in reported.of("replica")])


def _states(reported: ReportedCluster) -> list[tuple[CellId, ReplicaState]]:
    return [
        (server.cell, state)
        for server in reported.of("cell")
        if server.copies is not None and server.cell is not None
        for state in server.copies.replicas
    ]


def _line(server: Server, reported: ReportedCluster) -> ReplicaLine:
    here = [(cell, it) for cell, it in _states(reported) if it.address == server.address]
    return ReplicaLine(
        server,
        tuple([cell for cell, it in here if it.role == MEMBER]),
        tuple([cell for cell, it in here if it.role == LEARNER]),
        max([it.lag_entries for _, it in here], default=0),
        max([it.lag_us for _, it in here], default=0),
    )
