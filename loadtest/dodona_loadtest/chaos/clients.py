"""Client processes that may be killed at any time. Each writes what it did into a journal.

Owns: the processes and the pipes to them. A process whose pipe ends has lost its parent, and ends.
"""

import asyncio
import multiprocessing
import os
import random
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from dodona._core.protocol.context import Acknowledgement
from dodona._core.protocol.limits import SessionLimits
from dodona_loadtest.live.journal import Journal, JournaledHistory
from dodona_loadtest.live.session_group import SessionGroup
from dodona_loadtest.workloads import WORKLOADS
from dodona_wire.errors import Unavailable

_context: Final = multiprocessing.get_context("spawn")
_END: Final = "end"
COMMIT_S_MEAN: Final = 0.01


class Order(NamedTuple):
    """The work of a client process. Equal workload seeds give equal tables."""

    name: str
    master_url: str
    workload: str
    workload_seed: float
    session_count: int
    think_ms_mean: float
    acknowledgement: Acknowledgement
    patience_ms: int
    """How long it repeats a call, or asks for an outcome, before its caller gets an error."""
    commit_death_rate: float
    """How often the whole process kills itself by SIGKILL in the middle of a commit. No other
    process could aim at that time."""
    journal: Path


class ClientProcess:
    """A process with a few sessions in it."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._pipe, child_pipe = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(order, child_pipe), daemon=True)
        self._process.start()
        child_pipe.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_status(self) -> int | None:
        """The exit status. Negative: the signal that ended the process. None while it runs."""
        return self._process.exitcode

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Ask the process to finish the work of its sessions."""
        with suppress(OSError):
            self._pipe.send(_END)

    def wait(self, wait_s_max: float) -> bool:
        """Wait for the end of the process. Return whether it has ended."""
        self._process.join(wait_s_max)
        return not self.is_alive

    def _signal(self, number: signal.Signals) -> None:
        # The process keeps its id until it is joined, which only this thread does.
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, number)


def _serve(order: Order, pipe: Connection) -> None:
    """Run the child process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends all
    asyncio.run(_use(order, pipe))


async def _use(order: Order, pipe: Connection) -> None:
    history = JournaledHistory()
    workload = WORKLOADS[order.workload](Random(order.workload_seed))
    journal = Journal(order.journal, history, workload.violations)
    session_group = SessionGroup(
        order.master_url,
        workload,
        history,
        acknowledgement=order.acknowledgement,
        limits=SessionLimits(retry_ms_max=order.patience_ms),
        think_ms_mean=order.think_ms_mean,
        notice=journal.save,
    )

    def take_word() -> None:
        try:
            pipe.recv()
        except EOFError:
            os._exit(1)  # no process is left to read the journal
        session_group.end()

    asyncio.get_running_loop().add_reader(pipe.fileno(), take_word)
    with suppress(Unavailable):  # then it asks the master for timestamps, as clients may
        await session_group.connect()
    async with asyncio.TaskGroup() as sessions:
        for index in range(order.session_count):
            name = f"{order.name}.s{index}"
            db = session_group.recorder(name, Random(f"{order.workload_seed}/{name}"))
            db.on_commit = lambda: _maybe_die(order.commit_death_rate)
            sessions.create_task(session_group.use(db))
    asyncio.get_running_loop().remove_reader(pipe.fileno())
    journal.close()
    await session_group.close()


def _maybe_die(rate: float) -> None:
    """Kill this process at some time during the round trips and flushes of a commit."""
    if random.random() < rate:
        delay_s = random.expovariate(1 / COMMIT_S_MEAN)
        asyncio.get_running_loop().call_later(delay_s, os.kill, os.getpid(), signal.SIGKILL)
