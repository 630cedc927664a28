"""Calls of etcd that Dodona never makes: those of an operator, and of another program.

Owns: a plain connection to a member. It has no deadline but that of the test. It is gRPC's blocking
one: its asyncio can't be used in more than one event loop (`etcd_loop`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from aetcd import rpc

EVERY_KEY = b"\0"


class Operator:
    """A connection of an operator."""

    def __init__(self, channel: Any) -> None:
        self._keys = rpc.KVStub(channel)
        self._users = rpc.AuthStub(channel)

    async def put(self, key: bytes, value: bytes) -> None:
        await asyncio.to_thread(self._keys.Put, rpc.PutRequest(key=key, value=value))

    async def delete(self, key: bytes) -> None:
        await asyncio.to_thread(self._keys.DeleteRange, rpc.DeleteRangeRequest(key=key))

    async def compact(self, revision: int) -> None:
        """Forget all that was before a revision."""
        request = rpc.CompactionRequest(revision=revision, physical=True)
        await asyncio.to_thread(self._keys.Compact, request)

    async def keys(self) -> list[bytes]:
        request = rpc.RangeRequest(key=EVERY_KEY, range_end=EVERY_KEY, keys_only=True)
        return [it.key for it in (await asyncio.to_thread(self._keys.Range, request)).kvs]

    async def enable_users(self, user: str, password: str, prefix: bytes) -> None:
        """From now on only users get in. This one may use keys with the prefix."""
        await asyncio.to_thread(self._enable_users, user, password, prefix)

    def _enable_users(self, user: str, password: str, prefix: bytes) -> None:
        for name in ("root", user):
            self._users.UserAdd(rpc.AuthUserAddRequest(name=name, password=password))
            self._users.RoleAdd(rpc.AuthRoleAddRequest(name=name))
            self._users.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=name, role=name))
        permission = rpc.Permission(
            permType=rpc.Permission.READWRITE,
            key=prefix,
            range_end=prefix[:-1] + bytes([prefix[-1] + 1]),
        )
        granted = rpc.AuthRoleGrantPermissionRequest(name=user, perm=permission)
        self._users.RoleGrantPermission(granted)
        self._users.AuthEnable(rpc.AuthEnableRequest())


@asynccontextmanager
async def operator(target: str, credentials: Any = None) -> AsyncIterator[Operator]:
    if credentials is None:
        channel = grpc.insecure_channel(target)
    else:
        channel = grpc.secure_channel(target, credentials)
    with channel:
        yield Operator(channel)
