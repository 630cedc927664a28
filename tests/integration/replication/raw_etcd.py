"""Calls of etcd that Dodona never makes: those of an operator, and of another program.

Owns: a plain connection to a member. It has no deadline but that of the test.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from aetcd import rpc

EVERY_KEY = b"\0"


class Operator:
    """A connection of an operator."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def put(self, key: bytes, value: bytes) -> None:
        await rpc.KVStub(self._channel).Put(rpc.PutRequest(key=key, value=value))

    async def delete(self, key: bytes) -> None:
        await rpc.KVStub(self._channel).DeleteRange(rpc.DeleteRangeRequest(key=key))

    async def compact(self, revision: int) -> None:
        """Forget all that was before a revision."""
        request = rpc.CompactionRequest(revision=revision, physical=True)
        await rpc.KVStub(self._channel).Compact(request)

    async def keys(self) -> list[bytes]:
        request = rpc.RangeRequest(key=EVERY_KEY, range_end=EVERY_KEY, keys_only=True)
        return [it.key for it in (await rpc.KVStub(self._channel).Range(request)).kvs]

    async def enable_users(self, user: str, password: str, prefix: bytes) -> None:
        """From now on only users get in. This one may use keys with the prefix."""
        stub = rpc.AuthStub(self._channel)
        for name in ("root", user):
            await stub.UserAdd(rpc.AuthUserAddRequest(name=name, password=password))
            await stub.RoleAdd(rpc.AuthRoleAddRequest(name=name))
            await stub.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=name, role=name))
        permission = rpc.Permission(
            permType=rpc.Permission.READWRITE,
            key=prefix,
            range_end=prefix[:-1] + bytes([prefix[-1] + 1]),
        )
        granted = rpc.AuthRoleGrantPermissionRequest(name=user, perm=permission)
        await stub.RoleGrantPermission(granted)
        await stub.AuthEnable(rpc.AuthEnableRequest())


@asynccontextmanager
async def operator(target: str, credentials: Any = None) -> AsyncIterator[Operator]:
    if credentials is None:
        channel = grpc.aio.insecure_channel(target)
    else:
        channel = grpc.aio.secure_channel(target, credentials)
    async with channel:
        yield Operator(channel)
