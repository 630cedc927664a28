"""Where etcd is, how a process shows itself there, and how long it waits.

Owns: these options and their checks. The password never shows in a text.
Must not import: a client of etcd, so that settings can be read without one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import quote, urlsplit

from dodona_replication.core.document import check_name
from dodona_wire.errors import InvalidRequest
from dodona_wire.shown import shown

PORT: Final = 2379
ENDPOINTS_MAX: Final = 16


class Endpoint(NamedTuple):
    """A member of the cluster of etcd."""

    host: str
    """A name or an address. For a socket on this machine, its path."""
    port: int
    """0 for a socket on this machine."""
    is_encrypted: bool

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the endpoint of a URL such as `https://etcd-0:2379`, or `unix:///path`, which is a
        socket on this machine. Raises InvalidRequest."""
        scheme, _, path = url.partition("://")
        if scheme == "unix" and path.startswith("/"):
            return cls(path, 0, is_encrypted=False)
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port or PORT
        except ValueError:
            raise _bad_endpoint("not a URL") from None
        if parts.username is not None or parts.password is not None:
            raise _bad_endpoint("a URL with a password: set user and password instead")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _bad_endpoint(f"{shown(url)}, which is no http or https URL of a host")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise _bad_endpoint(f"{shown(url)}, which has more than a host and a port")
        return cls(parts.hostname, port, parts.scheme == "https")

    @property
    def target(self) -> str:
        """Return the place, as gRPC names it."""
        if not self.port:
            return f"unix:{quote(self.host, safe='/:')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        if not self.port:
            return f"unix://{self.host}"
        return f"{'https' if self.is_encrypted else 'http'}://{self.target}"


def _bad_endpoint(why: str) -> InvalidRequest:
    return InvalidRequest(f"an endpoint of etcd is {why}; use for example https://etcd-0:{PORT}")


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """What a process needs to ask etcd. Raises InvalidRequest for options that can't work."""

    endpoints: Sequence[str]
    """URLs of the members, such as `https://etcd-0:2379`. The next one is asked if one fails."""
    cluster: str
    """The id of Dodona's cluster. It is part of all keys."""
    user: str = ""
    """Empty: without a user."""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    """Certificates that vouch for etcd, as PEM. None: those that gRPC comes with."""
    certificate_file: Path | None = None
    """The certificate of this process, as PEM. None: it shows none."""
    key_file: Path | None = None
    """The key of that certificate."""
    connect_ms_max: int = 500
    """How long to wait for a connection to one member, and for a login there."""
    attempt_ms_max: int = 1_000
    """How long to wait for the answer of one member."""
    call_ms_max: int = 3_000
    """How long a call may take, with all members that it asks. A read asks all of them."""
    pause_ms: int = 50
    """How long to wait before the members are asked once more."""
    watch_pause_ms_max: int = 1_000
    """The longest pause before a watch begins again. The first pause is `pause_ms`."""
    progress_ms: int = 2_000
    """How long a watch may be silent before it asks the member for a sign of life."""
    silence_ms_max: int = 5_000
    """How long a watch may be silent before it goes to the next member."""

    def __post_init__(self) -> None:
        check_name(self.cluster, "cluster")
        if not 1 <= len(self.endpoints) <= ENDPOINTS_MAX:
            raise InvalidRequest(f"etcd has {len(self.endpoints)} endpoints: name 1 to 16")
        if bool(self.user) != bool(self.password):
            raise InvalidRequest("etcd needs both a user and a password, or none of them")
        if (self.certificate_file is None) != (self.key_file is None):
            raise InvalidRequest("etcd needs both a certificate and its key, or none of them")
        if min(self.connect_ms_max, self.attempt_ms_max, self.call_ms_max, self.pause_ms) <= 0:
            raise InvalidRequest("the waits for etcd are above 0 ms")
        if not 0 < self.progress_ms < self.silence_ms_max:
            raise InvalidRequest("progress_ms is above 0, and below silence_ms_max")
        is_encrypted = all(it.is_encrypted for it in self.members)
        if not is_encrypted and (self.ca_file or self.certificate_file):
            raise InvalidRequest("with certificates, each endpoint of etcd begins with https://")

    @property
    def members(self) -> tuple[Endpoint, ...]:
        """Return the endpoints."""
        return tuple(Endpoint.of(it) for it in self.endpoints)

    @property
    def prefix(self) -> bytes:
        """Return what the keys of all documents begin with."""
        return f"/dodona/{self.cluster}/logs/".encode()

    def key(self, log: str) -> bytes:
        """Return the key of a log's document. Raises InvalidRequest."""
        return self.prefix + check_name(log, "log").encode()
