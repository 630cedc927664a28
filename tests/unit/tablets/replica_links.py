"""Replicas without processes, in the place of the links of an owner to them."""

import asyncio
from collections.abc import Callable
from typing import Any

from dodona_replication.core.owner_effects import AskReplica
from dodona_replication.core.replica import ReplicaCore
from dodona_server.process import read_clock
from dodona_wire.cores.copies import ReplicaState
from dodona_wire.cores.effects import Append, ReadEntries
from dodona_wire.messages.base import Failure
from dodona_wire.messages.replicas import LogEntries
from unit.replication.replicas import CLUSTER, MemoryStore


class Replicas:
    """Replicas `a` to `d`, in the place of links to them. They answer in the next iteration of the
    event loop, unless they are away."""

    def __init__(self, log: str = "cell-1") -> None:
        self.log = log
        self.stores = {it: MemoryStore() for it in "abcd"}
        self.cores = {
            it: ReplicaCore(CLUSTER, it, store.logs(), read_clock())
            for it, store in self.stores.items()
        }
        self.away: set[str] = set()
        self.asked_count = 0
        self.replicas = tuple(self.stores)

    def __call__(self, *_: Any) -> "Replicas":
        return self

    @property
    def reachable(self) -> frozenset[str]:
        return frozenset(self.replicas) - self.away

    def members(self) -> list[MemoryStore]:
        """Those that have the log."""
        return [it for it in self.stores.values() if self.log in it.logs()]

    def open(self, hear: Callable[[], None]) -> None: ...

    async def close(self) -> None: ...

    def place_of(self, replica: str) -> str:
        return f"http://{replica}"

    def look(self) -> list[ReplicaState]:
        return [ReplicaState(f"http://{it}", "spare", it) for it in self.replicas]

    async def ask_epoch(self, replica: str, epoch: int) -> int:
        return 0

    def ask(self, asked: AskReplica, then: Callable[[Any], None]) -> None:
        self.asked_count += 1
        is_away = asked.replica in self.away
        reply = Failure("unavailable", "no answer") if is_away else self._answer(asked)
        asyncio.get_running_loop().call_soon(then, reply)

    def _answer(self, asked: AskReplica) -> Any:
        core, store = self.cores[asked.replica], self.stores[asked.replica]
        core.handle(None, asked.request, read_clock())
        reply: Any = None
        for effect in core.take_effects():
            if isinstance(effect, Append):
                store.append([effect.record])
                core.handle_durable(effect.record, read_clock())
            elif isinstance(effect, ReadEntries):
                _, *page = (getattr(effect, it) for it in effect.__struct_fields__)
                reply = LogEntries(store.read(*page))
            else:
                reply = getattr(effect, "body", None)
        return reply
