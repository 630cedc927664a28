"""The key of a cluster: what its processes and its clients show each other at each connection; and
the key that opens the metrics alone.

Owns: where they come from (a file for servers; for clients the password in the master's URL, or the
environment), how they travel (`Authorization: Basic`, without a name, or `Bearer`), and their
comparison, which takes as long for any wrong one. Nothing of this module shows a key. It is no
encryption: on a network that others can read, connections go through TLS.
"""

import base64
import binascii
import hmac
import os
import re
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from dodona.errors import InvalidRequest

ENVIRONMENT: Final = "DODONA_CLUSTER_KEY"
_FORM: Final = re.compile(r"[!-~]{16,256}")


class ClusterKey:
    """One key."""

    __slots__ = ("_name", "_text")

    def __init__(self, text: str, name: str = "") -> None:
        """`name` means nothing to the cluster; whatever stands in front of it may want one."""
        self._text = text
        self._name = name

    def __repr__(self) -> str:
        return "ClusterKey(...)"

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file that has nothing else in it. Raises InvalidRequest, without a word of it."""
        return cls(_read_key(path, "cluster's key"))

    @classmethod
    def of_client(cls, url: str) -> Self | None:
        """The one that a client was given with the master's URL (`http://:key@host:8500`), or with
        its environment."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.password:
            return cls(unquote(parts.password), unquote(parts.username or ""))
        text = os.environ.get(ENVIRONMENT)
        return cls(text) if text else None

    def authorization(self) -> str:
        """The value of the header."""
        return "Basic " + base64.b64encode(f"{self._name}:{self._text}".encode()).decode()

    def admits(self, header: str | None) -> bool:
        """Whether that value shows this key, under whatever name."""
        scheme, _, encoded = (header or "").partition(" ")
        try:
            shown = base64.b64decode(encoded if scheme.lower() == "basic" else "", validate=True)
        except (binascii.Error, ValueError):
            shown = b""
        return hmac.compare_digest(shown.partition(b":")[2], self._text.encode())


class MetricsKey:
    """A key that opens `/metrics` and nothing else, shown as a bearer token, as scrapers do."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "MetricsKey(...)"

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file that has nothing else in it. Raises InvalidRequest, without a word of it."""
        return cls(_read_key(path, "key of the metrics"))

    def admits(self, header: str | None) -> bool:
        """Whether the value of the header `Authorization` shows this key."""
        scheme, _, shown = (header or "").partition(" ")
        given = shown.strip() if scheme.lower() == "bearer" else ""
        return hmac.compare_digest(given.encode(), self._text.encode())


def _read_key(path: Path, what: str) -> str:
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the {what} can't be read: {error}") from error
    if _FORM.fullmatch(text) is None:
        raise InvalidRequest(f"a {what} has 16 to 256 visible ASCII characters")
    return text


def key_headers(key: ClusterKey | None) -> dict[str, str]:
    """What a client of the cluster sends with each request."""
    return {} if key is None else {"authorization": key.authorization()}
