"""The messages between owners and replicas travel as they are."""

import pytest

from dodona_wire.messages.codec import decode_replies, decode_requests, encode_frame
from dodona_wire.messages.replicas import (
    AlignLog,
    AwaitSilence,
    BeginLog,
    EntriesStored,
    EpochTooOld,
    FenceFirst,
    FenceLog,
    FetchEntries,
    LogAligned,
    LogEntries,
    LogFenced,
    LogMisaligned,
    LogPong,
    LogSilence,
    PingLog,
    ReplicaReply,
    ReplicaRequest,
    StoreEntries,
    WrongReplica,
)
from unit.replication.replicas import entries, request

REQUESTS: list[ReplicaRequest] = [
    request(FenceLog, 2),
    request(FetchEntries, 2, 1, 100),
    request(AlignLog, 2, 1, 1),
    request(StoreEntries, 2, 1, 1, entries(1, 2, first_index=2), 2, 1),
    request(BeginLog, 2, 1, entries(2, first_index=9)),
    request(PingLog, 2, 7),
    request(AwaitSilence, 2, 700, 10_000),
]
REPLIES: list[ReplicaReply] = [
    LogFenced(1, 0, ((1, 5), (2, 7))),
    LogEntries(entries(1, 2)),
    LogAligned(3),
    EntriesStored(4),
    LogMisaligned(3, 1, ((1, 5),)),
    LogPong(7, 1_700_000_000_000_000),
    LogSilence(2, 700),
    EpochTooOld(3),
    FenceFirst(0),
    WrongReplica("disk-2"),
]


@pytest.mark.parametrize("body", REQUESTS, ids=lambda body: type(body).__name__)
def test_a_request_travels_as_it_is(body: ReplicaRequest) -> None:
    assert decode_requests(encode_frame([(1, body)])) == [(1, body)]


@pytest.mark.parametrize("body", REPLIES, ids=lambda body: type(body).__name__)
def test_a_reply_travels_as_it_is(body: ReplicaReply) -> None:
    assert decode_replies(encode_frame([(1, body)])) == [(1, body)]
