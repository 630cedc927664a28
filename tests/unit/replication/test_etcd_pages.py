"""All documents of a large cluster are read, in pages of one revision."""

import asyncio

import pytest

from dodona_replication.core.document import Document, owner_id
from dodona_replication.shell import etcd
from dodona_replication.shell.etcd_options import EtcdOptions
from dodona_wire.errors import LimitExceeded
from unit.replication.scripted_etcd import KeptMember, coordinator_of

OPTIONS = EtcdOptions(["etcd-0"], "c1", call_ms_max=200, attempt_ms_max=100, pause_ms=1)
LONG = [f"{'replica' * 8}-{it}" for it in range(7)]


def taken(epoch: int) -> Document:
    document = Document.initial(LONG, 2)
    for _ in range(epoch):
        document = document.take_over(owner_id("n" * 60, b"12345678"))
    return document


@pytest.fixture
def member() -> KeptMember:
    return KeptMember(OPTIONS)


def test_documents_that_fill_several_answers_are_all_read(member: KeptMember) -> None:
    for number in range(9_000):
        member.put(OPTIONS.key(f"cell-{number}"), taken(1))
    member.put(b"/dodona/c2/logs/cell-1", taken(1))
    found = asyncio.run(coordinator_of(member, OPTIONS).documents())
    assert len(found) == 9_000
    assert found["cell-8999"].document == taken(1)


def test_all_pages_are_of_the_revision_of_the_first_one(
    member: KeptMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a log could be in two pages, or a take-over could show without one before it."""
    monkeypatch.setattr(etcd, "PAGE_KEYS_MAX", 2)
    for number in range(5):
        member.put(OPTIONS.key(f"cell-{number}"), taken(1))
    revision = member.revision
    found = asyncio.run(coordinator_of(member, OPTIONS).documents())
    assert sorted(found) == [f"cell-{number}" for number in range(5)]
    assert [it.revision for it in member.asked] == [0, revision, revision]
    assert [it.limit for it in member.asked] == [2, 2, 2]


def test_more_documents_than_the_limit_are_refused(
    member: KeptMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd, "PAGE_KEYS_MAX", 1)
    monkeypatch.setattr(etcd, "PAGES_MAX", 3)
    for number in range(4):
        member.put(OPTIONS.key(f"cell-{number}"), taken(1))
    with pytest.raises(LimitExceeded, match="more than 3 documents of cluster c1"):
        asyncio.run(coordinator_of(member, OPTIONS).documents())
