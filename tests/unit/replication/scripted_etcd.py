"""A member of etcd without a process: it has keys, and may refuse calls as etcd does."""

from typing import Any, Final, cast

import grpc
from aetcd import rpc

from dodona_replication.core.document import Document, encode
from dodona_replication.shell.etcd import EtcdCoordinator
from dodona_replication.shell.etcd_member import EtcdMember
from dodona_replication.shell.etcd_options import EtcdOptions

ANSWER_BYTES_MAX: Final = 4 << 20
"""What gRPC takes as one answer, by default."""


class Refused(grpc.RpcError):  # type: ignore[misc]  # gRPC has no types
    """An error of gRPC, as etcd sends it."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self._code, self._text = code, text

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._text


class KeptMember(EtcdMember):
    """A member with keys in memory. `refusal` is what it answers to each call in its place."""

    def __init__(self, options: EtcdOptions) -> None:
        super().__init__(options.members[0], options)
        self.revision = 1
        self.pairs: dict[bytes, tuple[int, bytes]] = {}
        self.refusal: Refused | None = None
        self.asked: list[Any] = []

    def put(self, key: bytes, document: Document) -> None:
        self.revision += 1
        self.pairs[key] = self.revision, encode("log", document)

    async def range(self, request: Any, wait_s: float) -> Any:
        """Answer as etcd does: sorted, no more than the limit, as of the revision."""
        self.asked.append(request)
        return self.hear(await self.guarded(self._range(request)))

    async def txn(self, request: Any, wait_s: float) -> Any:
        self.asked.append(request)
        return self.hear(await self.guarded(self._txn(request)))

    async def close(self) -> None: ...

    async def _range(self, request: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        at = request.revision or self.revision
        found = [
            rpc.KeyValue(key=key, value=value, mod_revision=revision)
            for key, (revision, value) in sorted(self.pairs.items())
            if request.key <= key < request.range_end and revision <= at
        ]
        limit = request.limit or len(found)
        answer = rpc.RangeResponse(
            header=rpc.ResponseHeader(revision=self.revision),
            kvs=found[:limit],
            more=len(found) > limit,
        )
        if answer.ByteSize() > ANSWER_BYTES_MAX:
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max")
        return answer

    async def _txn(self, request: Any) -> Any:
        assert self.refusal is not None
        raise self.refusal


def coordinator_of(member: KeptMember, options: EtcdOptions) -> EtcdCoordinator:
    """A coordinator that asks this member."""
    made = EtcdCoordinator(options)
    made._members = [cast(EtcdMember, member)]
    return made
