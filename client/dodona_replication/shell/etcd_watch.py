"""One watch of etcd, on one member, until it ends.

Owns: how it is known that a watch still lives. A member that stands still says nothing, and nor
does one without news. So a silent watch asks for a sign of life.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc
from aetcd import rpc

from dodona_replication.shell.etcd_member import MS_PER_S, CallFailed, EtcdMember
from dodona_replication.shell.etcd_options import EtcdOptions


async def events_of(
    member: EtcdMember, key: bytes, start_revision: int, options: EtcdOptions
) -> AsyncGenerator[Any]:
    """Yield the events of a key from a revision on. Raises CallFailed when the watch ends: the
    connection is lost, etcd cancelled or compacted it, or it is silent for `silence_ms_max`. Raises
    as `EtcdMember.range` does."""
    call = await member.watch()
    try:
        create = rpc.WatchCreateRequest(key=key, start_revision=start_revision)
        await _write(member, call, rpc.WatchRequest(create_request=create), options)
        async with aclosing(answers_of(member, call, options)) as answers:
            async for answer in answers:
                if answer.canceled:
                    reason = answer.cancel_reason or f"compacted at {answer.compact_revision}"
                    raise _ended(member, f"etcd cancelled the watch: {reason}")
                for event in member.hear(answer).events:
                    yield event
    finally:
        call.cancel()


async def answers_of(member: EtcdMember, call: Any, options: EtcdOptions) -> AsyncGenerator[Any]:
    """Yield the answers to a stream, signs of life included. Raises CallFailed when it ends."""
    silent_ms = 0
    reading = asyncio.ensure_future(member.guarded(call.read()))
    try:
        while True:
            # Not `wait_for`: a read that is cancelled ends the call.
            await asyncio.wait({reading}, timeout=options.progress_ms / MS_PER_S)
            if reading.done():
                answer = reading.result()
                if answer is grpc.aio.EOF:
                    raise _ended(member, "etcd ended the watch")
                silent_ms = 0
                yield answer
                reading = asyncio.ensure_future(member.guarded(call.read()))
                continue
            silent_ms += options.progress_ms
            if silent_ms >= options.silence_ms_max:
                raise _ended(member, f"the watch was silent for {silent_ms} ms")
            progress = rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())
            await _write(member, call, progress, options)
    finally:
        reading.cancel()


async def _write(member: EtcdMember, call: Any, request: Any, options: EtcdOptions) -> None:
    wait_s = options.attempt_ms_max / MS_PER_S
    try:
        await asyncio.wait_for(member.guarded(call.write(request)), wait_s)
    except TimeoutError as error:
        raise _ended(member, f"a request of the watch waited for {wait_s} s") from error


def _ended(member: EtcdMember, reason: str) -> CallFailed:
    return CallFailed(member.endpoint, reason, may_be_done=False)
