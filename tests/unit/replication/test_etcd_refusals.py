"""What etcd refuses a user of it, and what the error says to the operator."""

import asyncio
from dataclasses import replace

import grpc
import pytest

from dodona_replication.core.document import Document
from dodona_replication.shell.etcd_options import EtcdOptions
from dodona_wire.errors import Forbidden, Unauthenticated, Unavailable
from unit.replication.scripted_etcd import KeptMember, Refused, coordinator_of

OPTIONS = EtcdOptions(
    ["etcd-0"], "c1", "ann", "secret", call_ms_max=200, attempt_ms_max=100, pause_ms=1
)
DENIED = Refused(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")
EMPTY = Refused(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty")


def refusing(refusal: Refused, options: EtcdOptions = OPTIONS) -> KeptMember:
    member = KeptMember(options)
    member.refusal = refusal
    return member


def test_a_user_without_the_right_to_read_is_told_what_to_grant() -> None:
    with pytest.raises(Forbidden) as caught:
        asyncio.run(coordinator_of(refusing(DENIED), OPTIONS).documents())
    assert "the user ann needs a role that may read and write" in caught.value.message
    grant = "etcdctl role grant-permission ROLE --prefix=true readwrite /dodona/c1/"
    assert grant in caught.value.message
    assert caught.value.attributes == {"user": "ann", "prefix": "/dodona/c1/"}


def test_a_user_that_may_only_read_is_told_the_same_at_a_compare() -> None:
    compare = coordinator_of(refusing(DENIED), OPTIONS).compare
    with pytest.raises(Forbidden, match="the user ann needs a role"):
        asyncio.run(compare("cell-1", None, Document.initial(["a", "b"], 2)))


def test_the_user_of_a_certificate_has_no_name_here() -> None:
    plain = replace(OPTIONS, user="", password="")
    with pytest.raises(Forbidden, match="the user of its certificate needs a role"):
        asyncio.run(coordinator_of(refusing(DENIED, plain), plain).read("cell-1"))


def test_a_process_without_a_user_is_told_to_set_one_if_etcd_has_users() -> None:
    """It was called unavailable: an operator looked for a member that does not run."""
    plain = replace(OPTIONS, user="", password="")
    with pytest.raises(Unauthenticated, match="--etcd-user") as caught:
        asyncio.run(coordinator_of(refusing(EMPTY, plain), plain).documents())
    assert caught.value.attributes == {"prefix": "/dodona/c1/"}


def test_another_refusal_of_etcd_is_no_question_of_users() -> None:
    full = Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
    with pytest.raises(Unavailable, match="database space exceeded"):
        asyncio.run(coordinator_of(refusing(full), OPTIONS).read("cell-1"))
