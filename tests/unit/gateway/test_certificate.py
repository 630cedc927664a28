"""A certificate that is renewed: taken up when both files are there, and not before."""

import logging
import ssl
from pathlib import Path

import pytest
import trustme

from dodona_gateway.shell.certificate import Certificate

NAME = "gateway.example.org"


class Files:
    """A certificate's, and who signs it."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.chain, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew()

    def renew(self) -> None:
        issued = self.authority.issue_cert(NAME)
        self.chain.write_bytes(issued.cert_chain_pems[0].bytes())
        self.key.write_bytes(issued.private_key_pem.bytes())

    def context(self) -> ssl.SSLContext:
        """What a server makes of them when it starts."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def shown(server: ssl.SSLContext, authority: trustme.CA, name: str | None = NAME) -> bytes:
    """The certificate that a client gets in a handshake, in memory."""
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    authority.configure_trust(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = context.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [one, other, one, other]
    for end in waiting:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = one.getpeercert(binary_form=True)
    assert found is not None
    return found


@pytest.mark.parametrize("name", [NAME, None])
def test_new_connections_see_a_renewed_certificate(files: Files, name: str | None) -> None:
    """Also to those who say no name, as for an address."""
    context, certificate = files.context(), Certificate(files.chain, files.key)
    certificate.attend(context)
    first = shown(context, files.authority, name)
    certificate.look()
    assert shown(context, files.authority, name) == first
    files.renew()
    assert shown(context, files.authority, name) == first, "it was not looked at yet"
    certificate.look()
    assert shown(context, files.authority, name) != first


def test_a_link_that_leads_elsewhere_is_a_change(files: Files, tmp_path: Path) -> None:
    """As Kubernetes replaces a Secret's files: all at once, by a link to another folder."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        files.renew()
        for file in (files.chain, files.key):
            file.rename(tmp_path / name / file.name)
    data = tmp_path / "..data"
    data.symlink_to("one")
    for file in (files.chain, files.key):
        file.symlink_to(f"..data/{file.name}")
    context, certificate = files.context(), Certificate(files.chain, files.key)
    certificate.attend(context)
    first = shown(context, files.authority)
    beside = tmp_path / "..data_tmp"
    beside.symlink_to("other")
    beside.rename(data)
    certificate.look()
    assert shown(context, files.authority) != first


def test_files_that_are_no_pair_change_nothing(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    context, certificate = files.context(), Certificate(files.chain, files.key)
    certificate.attend(context)
    first = shown(context, files.authority)
    old_key = files.key.read_bytes()
    files.renew()
    new_key = files.key.read_bytes()
    caplog.set_level(logging.INFO)
    for bad in (old_key, b"none", None):
        files.key.unlink() if bad is None else files.key.write_bytes(bad)
        for _ in range(3):
            certificate.look()
        assert shown(context, files.authority) == first
    warnings = [it.fields for it in caplog.records if it.levelno == logging.WARNING]  # type: ignore[attr-defined]
    assert [it["event"] for it in warnings] == ["certificate_refused"] * 3, "each is said once"
    files.key.write_bytes(new_key)
    certificate.look()
    assert shown(context, files.authority) != first
    assert caplog.records[-1].fields == {"event": "certificate_renewed"}  # type: ignore[attr-defined]


def test_an_encrypted_key_keeps_the_old_certificate_without_a_password_prompt(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    from cryptography.hazmat.primitives import serialization

    context, certificate = files.context(), Certificate(files.chain, files.key)
    certificate.attend(context)
    first = shown(context, files.authority)
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"a password"),
        )
    )
    certificate.look()
    assert shown(context, files.authority) == first
    assert "encrypted" in str(caplog.records[-1].fields["reason"])  # type: ignore[attr-defined]


def test_without_files_there_is_no_certificate(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Certificate(tmp_path / "tls.crt", tmp_path / "tls.key")
