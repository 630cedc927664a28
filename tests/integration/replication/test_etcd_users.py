"""An etcd with TLS and users: who gets in, and what never shows."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import grpc
import pytest
import trustme

from dodona_replication.core.coordination import Applied
from dodona_replication.core.document import Document
from dodona_replication.shell.etcd import EtcdCoordinator
from dodona_replication.shell.etcd_options import EtcdOptions
from dodona_wire.errors import Forbidden, InvalidRequest, Unauthenticated, Unavailable
from integration.replication.raw_etcd import operator
from suite.etcd import HOST, NEEDS_ETCD, EtcdCluster

pytestmark = [pytest.mark.integration, NEEDS_ETCD]

FIRST: Final = Document.initial(["a", "b"], 2)
USER: Final = "dodona"
PASSWORD: Final = "s3cr3t-w0rd"
LOG: Final = "cell-1"


class Guarded:
    """A cluster with TLS, certificates of clients and users, and the options that get in."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        server = authority.issue_cert(HOST)
        # etcd's own gateway calls by the name of the certificate: it needs one for clients, too.
        client = authority.issue_cert("dodona")
        self._folder = folder
        self._write("ca.pem", authority.cert_pem)
        for name, issued in (("server", server), ("client", client)):
            (folder / f"{name}.pem").write_bytes(
                b"".join(it.bytes() for it in issued.cert_chain_pems)
            )
            self._write(f"{name}.key", issued.private_key_pem)
        options = ["--cert-file", str(folder / "server.pem")]
        options += ["--key-file", str(folder / "server.key"), "--client-cert-auth"]
        options += ["--trusted-ca-file", str(folder / "ca.pem")]
        self.cluster = EtcdCluster(folder, 1, "https", options)
        self.member = self.cluster.members[0]
        self.options = EtcdOptions(
            [self.member.url],
            "c1",
            USER,
            PASSWORD,
            ca_file=folder / "ca.pem",
            certificate_file=folder / "client.pem",
            key_file=folder / "client.key",
            connect_ms_max=10_000,
            call_ms_max=30_000,
        )

    def _write(self, name: str, blob: trustme.Blob) -> None:
        blob.write_to_path(self._folder / name)

    def start(self) -> None:
        self.cluster.start()
        asyncio.run(self._enable_users())

    async def _enable_users(self) -> None:
        parts = [(self._folder / it).read_bytes() for it in ("ca.pem", "client.key", "client.pem")]
        credentials = grpc.ssl_channel_credentials(*parts)
        async with operator(f"{HOST}:{self.member.port}", credentials) as by_hand:
            await by_hand.enable_users(USER, PASSWORD, b"/dodona/c1/")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    try:
        made.start()
        yield made
    finally:
        made.cluster.close()


async def read(options: EtcdOptions) -> None:
    coordinator = EtcdCoordinator(options)
    try:
        await coordinator.read(LOG)
    finally:
        await coordinator.close()


def test_the_right_user_gets_in_and_again_after_a_restart(guarded: Guarded) -> None:
    """A restart of etcd ends the login: its tokens are in memory."""

    async def use() -> None:
        coordinator = EtcdCoordinator(guarded.options)
        answer = await coordinator.compare(LOG, None, FIRST)
        assert isinstance(answer, Applied)
        await asyncio.to_thread(guarded.cluster.restart, guarded.member)
        found = await coordinator.read(LOG)
        assert found is not None
        assert (found.document, found.revision) == (FIRST, answer.revision)
        watch = coordinator.watch(LOG, 0)
        assert await anext(watch) == found
        await watch.aclose()
        await coordinator.close()

    asyncio.run(use())


def test_a_wrong_password_is_refused_and_never_shown(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = replace(guarded.options, password=f"{PASSWORD}-2")
    with pytest.raises(Unauthenticated, match=USER) as caught:
        asyncio.run(read(wrong))
    shown = f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {caplog.text}"
    assert PASSWORD not in shown


def test_a_user_has_the_keys_of_one_cluster(guarded: Guarded) -> None:
    with pytest.raises(Forbidden, match="/dodona/c2/"):
        asyncio.run(read(replace(guarded.options, cluster="c2")))


def test_an_etcd_of_another_authority_is_not_asked(guarded: Guarded, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    other = replace(guarded.options, ca_file=tmp_path / "other.pem", call_ms_max=300)
    with pytest.raises(Unavailable, match="TLS"):
        asyncio.run(read(other))


def test_a_file_that_is_missing_is_named(guarded: Guarded, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none\.pem"):
        asyncio.run(read(replace(guarded.options, ca_file=tmp_path / "none.pem")))
