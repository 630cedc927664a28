"""Processes that wait for the silence of an owner under virtual time, as nodes do.

Owns: the host of the standby's core, and the times at which logs were opened. The other processes
of `replicated_log` take over at random.
Must not import: any core but those of `dodona_replication`.
"""

from typing import Any

from dodona_replication.core.owner_effects import AskReplica
from dodona_replication.core.standby import Candidate, OwnLog, Standby, StandbyLimits
from dodona_wire.errors import Unavailable
from simulator.replica_host import CLUSTER, LOG
from simulator.replicated_log import Process, ReplicatedLogRun

ANSWER_US_MAX = 2_000_000
"""How long a standby waits for an answer. Replicas hold answers back."""
STEP_US = 1_000


class StandbyProcess(Process):
    """It waits until the log has no owner. The first one makes the log its own."""

    standby: Standby | None = None
    former: str | None = None
    since_us: int | None = None

    def crash(self) -> None:
        self.standby = self.since_us = None
        self.former = self.identity.owner
        super().crash()

    def _work(self) -> None:
        if self.owner is None and self.taking is None:
            if not self._is_reading:
                self._wait()
            return
        super()._work()

    def _wait(self) -> None:
        if self.standby is None:
            own = OwnLog(LOG, self.former) if self.name == "node-0" else None
            now = self._clock.now()
            self.since_us = self.since_us or now.instant_us
            limits = StandbyLimits()
            candidate = Candidate(CLUSTER, "cell-")
            self.standby = Standby(candidate, limits, now, own, self.since_us)
        standby = self.standby
        standby.know(frozenset(it for it, host in self._run.replicas.items() if not host.is_lost))
        standby.tick(self._clock.now())
        for effect in standby.take_effects():
            if isinstance(effect, AskReplica):
                self.send(effect, ANSWER_US_MAX, self._taker(standby, effect))
            else:
                self.port.read_all(lambda it: self._when_awake(lambda: self._learn(standby, it)))
        if standby.found is not None:
            self.standby = None
            self.begin(standby.found.seen)

    def _taker(self, standby: Standby, asked: AskReplica) -> Any:
        return lambda reply: standby.handle_reply(asked, reply, self._clock.now())

    def _learn(self, standby: Standby, found: Any) -> None:
        documents = None if isinstance(found, Unavailable) else found
        standby.handle_documents(documents, self._clock.now())


def standby_run(seed: int, **more: Any) -> ReplicatedLogRun:
    """Three processes that wait for each other's silence."""
    return ReplicatedLogRun(seed, make_process=StandbyProcess, **more)


def owner_of(run: ReplicatedLogRun) -> Process | None:
    """The process that may answer now, if there is one."""
    for it in run.processes:
        if it.owner is not None and it.owner.may_read(it._clock.now()):
            return it
    return None


def seconds_until_another(run: ReplicatedLogRun, before: Process, epoch: int) -> float:
    """How long it takes until the log is open in a later epoch, at another process."""
    began_us = run.world.now_us
    while run.world.now_us < began_us + 60_000_000:
        run.world.run_until(run.world.now_us + STEP_US)
        now = owner_of(run)
        if now is not None and now is not before and now.owner is not None:
            assert now.owner.epoch > epoch
            return (run.world.now_us - began_us) / 1e6
    raise AssertionError("no process took the log over")
