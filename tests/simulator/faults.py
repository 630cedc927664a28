"""What goes wrong in a run: faults at certain instants, and rates of all others.

Owns: the words for it. A seed's are drawn before its run begins (see `drawing`), carried out by the
cluster, and over when the safety phase is. Must not import: any core.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from dodona._core.protocol.context import Acknowledgement
from simulator.disk import DiskOptions
from simulator.network import NetworkOptions
from simulator.object_store import ObjectStoreOptions

HostFault = Literal["crash", "fuse", "append", "verdict", "pause", "clock_step", "takeover"]
"""crash: now; fuse, append, verdict: in the middle of its work (see `doom`); pause: stands still;
clock_step: the wall clock jumps, either way; takeover: another process takes the master's store
over while this one still runs, or pauses."""
DiskFault = Literal["stall", "full_disk", "absent_disk"]
"""stall: no flush ends for a while; full_disk: each is refused, and its process ends of it;
absent_disk: a node is started with an empty disk, until it has its own again."""
LinkFault = Literal["cut", "partition", "clog", "swizzle", "half_open", "unanswered"]
"""cut: all that is sent one way is lost; partition: both ways; clog: it waits, and then arrives in
a burst; swizzle: one of several clogs that begin one after the other and end in another order;
half_open: what is asked is lost, and no connection shows it; unanswered: it is heard and carried
out, and the answers are lost."""
FaultKind = HostFault | DiskFault | LinkFault
LINK_FAULTS: Final[tuple[str, ...]] = get_args(LinkFault)


@dataclass(frozen=True, slots=True)
class Fault:
    """At an instant, to a process, for a while; to links: to those between the target and its
    allies, and the others."""

    at_us: int
    kind: FaultKind
    target: str
    duration_us: int
    others: tuple[str, ...] = ()
    allies: tuple[str, ...] = ()

    @property
    def shape(self) -> str:
        """What kind of process it befalls, or how much of the network."""
        if self.kind not in LINK_FAULTS:
            return self.target.partition("-")[0]
        fewer, more = sorted((1 + len(self.allies), len(self.others)))
        if more == 1:
            return "link"
        return "process" if fewer == 1 else "group"

    @property
    def links(self) -> list[tuple[str, str]]:
        """From source to target; a cut is one way, all others both ways."""
        there = [(source, to) for source in (self.target, *self.allies) for to in self.others]
        return there if self.kind == "cut" else [*there, *((to, source) for source, to in there)]


@dataclass(frozen=True, slots=True)
class ClockOptions:
    """How far clocks may go wrong: parts of the time that passes. The master's wall clock has an
    option of its own."""

    wall_drift_max: float = 0.0
    instant_drift_max: float = 0.0


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that a seed decides about a run but the order of its events.

    Numbers with a fraction are rates of something that goes wrong, and 0.0 is never; where it is
    otherwise, `calm` says at which value nothing goes wrong.
    """

    cell_count: int
    proxy_count: int
    client_count: int
    session_count: int
    call_timeout_us: int
    think_us_mean: int
    patience_ms: int
    """How long a client repeats a call, or asks for an outcome, before its caller is told."""
    acknowledgement: Acknowledgement
    session_life_us_mean: int = field(metadata={"calm": 0})
    """How long a session lives before its caller vanishes; 0: for ever."""
    commit_death_rate: float
    """How often a session's caller vanishes while its transaction commits."""
    transaction_life_s_max: int
    """A short life lets the forget watermark pass over transactions that are still under way."""
    page_rows_max: int
    """How many rows, or keys, a client asks for in one request."""
    is_ceiling_tight: bool
    """Whether the master keeps so little ahead of need that callers often wait for its disk."""
    master_clock_rate: float = field(metadata={"calm": 1.0})
    """How fast the master's wall clock goes; standing still, it leaves all to the ceiling."""
    has_one_question: bool
    """Whether a node has one question to the oracle in flight, as production has, or many."""
    remount_us_mean: int = field(metadata={"calm": 0})
    """How long an operator waits before unmounting and mounting a table again; 0: for ever."""
    moves_rate: float
    """How often a restarted node comes back at another address."""
    network: NetworkOptions
    disk: DiskOptions
    clocks: ClockOptions
    faults: tuple[Fault, ...]
    client_skew_us_max: int = field(metadata={"calm": 0})
    """How far the clients' wall clocks are off, either way. Above a minute some are refused."""
    is_followed: bool = False
    """Whether somebody reads all changes meanwhile. No seed has it so: it is for runs that ask for
    it."""
    clock_difference_s_max: int = 60
    """How far a client's clock may be off before its rows without atomicity are refused. No seed
    draws it: it is production's wherever the workload has such rows."""
    memory_bytes_max: int = field(default=0, metadata={"calm": 0})
    """What rows in a node's memory may take, where what is flushed leaves it soon; 0: as much as
    in production, which no run fills."""
    is_tidied: bool = False
    """Whether cells look at what retention lets go every second, and keep nothing for readers who
    might yet renew. No seed has it so: it is where the workload's rows expire."""
    objects: ObjectStoreOptions = ObjectStoreOptions()  # noqa: RUF009 - frozen
    """Whether chunks are in an object store, and what goes wrong there. No seed has one: it is for
    runs that ask for it."""
    fault_point_rate: float = 0.0
    """The part of the fault points that are active, from 0 to 1."""
