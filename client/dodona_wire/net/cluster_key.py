"""The key that processes and clients of a cluster show each other, and the key of the metrics.

Owns: where keys come from, how they travel, and how they are compared. A server reads its key from
a file. A client takes it from the password in the master's URL, or from the environment. It can
also read a file that a master on this machine names. A key travels in `Authorization`, as `Basic`
without a name or as `Bearer`. The comparison takes equally long for every wrong key. This module
never shows a key. A key does not encrypt: on a network that others can read, use TLS.
"""

import base64
import binascii
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from dodona_wire.errors import InvalidRequest, Unauthenticated
from dodona_wire.net.addresses import is_loopback
from dodona_wire.net.callers import is_local_place

ENVIRONMENT: Final = "DODONA_CLUSTER_KEY"
KEY_FILE: Final = "cluster-key"
"""The name of the key file of a cluster on one machine."""
KEY_LENGTH_MAX: Final = 256
KEY_BYTES: Final = 32
"""Random bytes in a key that is made here."""
HTTP_PORT: Final = 80
_FORM: Final = re.compile(r"[!-~]{16,256}")
_LISTENING: Final = "0A"
"""The state of a listening socket in the kernel's table."""


class ClusterKey:
    """The key of a cluster."""

    __slots__ = ("_name", "_text")

    def __init__(self, text: str, name: str = "") -> None:
        """Keep a key. The cluster ignores `name`; a proxy before the cluster may need one."""
        self._text = text
        self._name = name

    def __repr__(self) -> str:
        return "ClusterKey(...)"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key from a file with nothing else. Raises InvalidRequest, without the key."""
        return cls(_read_key(path, "cluster's key"))

    @classmethod
    def of_client(cls, url: str) -> Self | None:
        """Return the key that a client got with the master's URL (`http://:key@host:8500`) or with
        its environment."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.password:
            return cls(unquote(parts.password), unquote(parts.username or ""))
        text = os.environ.get(ENVIRONMENT)
        return cls(text) if text else None

    @classmethod
    def announced(cls, url: str, attributes: Mapping[str, Any]) -> Self | None:
        """Return the key from the file that a master on this machine named in its refusal. A
        process that may read the file may use the key. The port must belong to the owner of the
        file, so that no other user's program gets the key. None if there is no such key."""
        parts = urlsplit(url)
        path = attributes.get("key_file")
        if not isinstance(path, str) or not is_loopback(parts.hostname or ""):
            return None
        try:
            with open(path, opener=_open_at_once) as file:
                found = os.fstat(file.fileno())
                is_private = stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077
                is_owners = owners_of_port(parts.port or HTTP_PORT) == {found.st_uid}
                text = file.read(KEY_LENGTH_MAX + 2).strip()
        except (OSError, UnicodeDecodeError):
            return None
        is_key = Path(path).name == KEY_FILE and _FORM.fullmatch(text) is not None
        return cls(text) if is_key and is_private and is_owners else None

    def authorization(self) -> str:
        """Return the value of the header `Authorization`."""
        return "Basic " + base64.b64encode(f"{self._name}:{self._text}".encode()).decode()

    def admits(self, header: str | None) -> bool:
        """Return whether that value shows this key, under any name."""
        scheme, _, encoded = (header or "").partition(" ")
        try:
            shown = base64.b64decode(encoded if scheme.lower() == "basic" else "", validate=True)
        except (binascii.Error, ValueError):
            shown = b""
        return hmac.compare_digest(shown.partition(b":")[2], self._text.encode())


class MetricsKey:
    """A key that opens `/metrics` and nothing else. Scrapers show it as a bearer token."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "MetricsKey(...)"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key from a file with nothing else. Raises InvalidRequest, without the key."""
        return cls(_read_key(path, "key of the metrics"))

    def admits(self, header: str | None) -> bool:
        """Return whether the value of the header `Authorization` shows this key."""
        scheme, _, shown = (header or "").partition(" ")
        given = shown.strip() if scheme.lower() == "bearer" else ""
        return hmac.compare_digest(given.encode(), self._text.encode())


class Admission(NamedTuple):
    """The keys that a server accepts."""

    key: ClusterKey | None = None
    metrics_key: MetricsKey | None = None
    is_open: bool = False
    """Whether the server takes no key, and only this machine reaches it."""
    announced: str | None = None
    """The file with the key, if clients on this machine may look there."""

    def admits(self, shown: str | None, *, is_scrape: bool = False) -> bool:
        """Return whether `Authorization` opens everything, or in a scrape the metrics."""
        if self.key is not None and self.key.admits(shown):
            return True
        if is_scrape:
            return self.metrics_key is not None and self.metrics_key.admits(shown)
        return self.key is None

    def refusal(self, host: str | None) -> Unauthenticated:
        """Return the error of a refused caller. Only a caller on this machine gets the file."""
        attributes: dict[str, Any] = {}
        text = "the request does not have the cluster's key"
        if self.announced is not None and is_local_place(host):
            attributes["key_file"] = self.announced
            text += f", which is in {self.announced}"
        return Unauthenticated(text, **attributes)


def _read_key(path: Path, what: str) -> str:
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the {what} can't be read: {error}") from error
    if _FORM.fullmatch(text) is None:
        raise InvalidRequest(f"a {what} has 16 to 256 visible ASCII characters")
    return text


def _open_at_once(path: str, flags: int) -> int:
    """Open a path without waiting, even if it is a pipe that no process writes to."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def owners_of_port(port: int) -> set[int]:
    """Return the user ids of the processes that listen at that port of this machine. Raises OSError
    if the system does not say."""
    owners = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                owners.add(int(fields[7]))
    return owners


def make_key(path: Path) -> None:
    """Make a file with a new key, for its owner alone, unless there is one. Raises OSError."""
    from dodona_wire.net.folder import sync_folder

    if path.exists():
        return
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe(KEY_BYTES)}\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_folder(path.parent)


def key_headers(key: ClusterKey | None) -> dict[str, str]:
    """Return the headers that a client of the cluster sends with each request."""
    return {} if key is None else {"authorization": key.authorization()}
