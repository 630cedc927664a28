"""A gateway that speaks TLS, one without a console, and gateways that must not start."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
import trustme

from dodona_local.launcher import LocalCluster
from dodona_local.ports import reserve_ports
from suite.waiting import WAIT_S_MAX, wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@contextmanager
def gateway(*options: str) -> Iterator[str]:
    """A gateway process with these options: its port."""
    reservation = reserve_ports(0, 1)
    (port,) = reservation.ports
    command = [sys.executable, "-m", "dodona_gateway", "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield str(port)
    finally:
        process.terminate()
        process.wait(WAIT_S_MAX)
        reservation.release()


def wait_until_ready(http: httpx.Client) -> None:
    def is_ready() -> bool:
        try:
            return http.get("/readyz").status_code == 200
        except httpx.ConnectError:
            return False

    wait_until(is_ready, "the gateway is not ready", pause_s=0.05)


def test_tls_from_one_end_to_the_other(authority: trustme.CA, tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    write(authority, chain, key)
    with LocalCluster(tmp_path / "data", node_count=1) as cluster:
        options = ("--master-url", cluster.master_url, "--insecure")
        tls = ("--tls-certificate", str(chain), "--tls-key", str(key))
        with gateway(*options, *tls) as port:
            with closing(client(port, authority)) as http:
                wait_until_ready(http)
                begun = http.post("/v1/transactions", json={}).json()
                assert begun["gateway"] == f"https://127.0.0.1:{port}"
                assert http.post("/v1/timestamps", json={"count": 2}).json()["count"] == 2
            with closing(client(port, trustme.CA())) as stranger, pytest.raises(httpx.ConnectError):
                stranger.get("/readyz")
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"http://127.0.0.1:{port}/readyz")


def test_a_certificate_that_is_renewed_is_in_use_without_a_restart(
    authority: trustme.CA, tmp_path: Path
) -> None:
    """By whoever connects from then on. A connection that is there goes on."""
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    successor = trustme.CA()
    write(authority, chain, key)
    with LocalCluster(tmp_path / "data", node_count=1) as cluster:
        options = ("--master-url", cluster.master_url, "--insecure")
        tls = ("--tls-certificate", str(chain), "--tls-key", str(key))
        with gateway(*options, *tls) as port, closing(client(port, authority)) as old:
            wait_until_ready(old)
            assert not is_trusted(port, successor)
            write(successor, chain, key)
            wait_until(lambda: serves(old) and is_trusted(port, successor))
            assert old.get("/readyz").status_code == 200
            assert not is_trusted(port, authority)


def serves(http: httpx.Client) -> bool:
    assert http.get("/readyz").status_code == 200
    return True


def is_trusted(port: str, authority: trustme.CA) -> bool:
    """Whether somebody who trusts this authority gets a new connection."""
    with closing(client(port, authority)) as http:
        try:
            return http.get("/readyz").is_success
        except httpx.ConnectError:
            return False


def write(authority: trustme.CA, chain: Path, key: Path) -> None:
    """A certificate that it has signed."""
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(chain))
    certificate.private_key_pem.write_to_path(str(key))


def client(port: str, authority: trustme.CA) -> httpx.Client:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context)


def test_a_console_that_is_switched_off_is_not_there(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "data", node_count=1) as cluster,
        gateway("--master-url", cluster.master_url, "--no-console") as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        wait_until_ready(http)
        for path in ("/console/login", "/console/static/console.css"):
            assert http.get(path).status_code == 404
        unknown = http.get("/console")  # as anywhere: who calls is asked for first
        assert unknown.status_code == 401
        assert unknown.json()["kind"] == "unauthenticated"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--insecure", "--host", "192.0.2.1"), "loopback"),
        (("--insecure", "--host", "localhost.example"), "loopback"),
        (("--tls-key", "/none"), "set both tls-certificate and tls-key"),
        (("--number", "65536"), "number"),
        (("--host", "0.0.0.0"), "public-url"),
    ],
)
def test_a_gateway_reports_wrong_settings_without_a_traceback(
    options: tuple[str, ...], complaint: str
) -> None:
    command = [sys.executable, "-m", "dodona_gateway", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
