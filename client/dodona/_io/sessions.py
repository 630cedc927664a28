"""What both clients need first: a session with the clocks and dice of this process, and the module
of the embedded database. Must not import: a network library, a server."""

import functools
import os
import random
import time
from typing import Any, Final

# Import these now. Then a program can name an error or a type even if it can open no more files.
import dodona.errors
import dodona.schema
import dodona.types  # noqa: F401
from dodona._core.protocol.arguments import check_flag
from dodona._core.protocol.context import (
    DEFAULT_ACKNOWLEDGEMENT,
    Acknowledgement,
    check_acknowledgement,
)
from dodona._core.session import Session
from dodona._core.writing.reads import check_isolation
from dodona_wire.errors import InvalidRequest
from dodona_wire.net.descriptors import need_descriptors
from dodona_wire.net.urls import hide_password
from dodona_wire.types import Isolation

FolderPath = str | os.PathLike[str]
CONNECT_TIMEOUT_MS: Final = 10_000
SERVERS: Final = "dodona-server"
"""The distribution that has the embedded database."""
DATABASES: Final = "dodona.databases"
"""The group of its entry points that has the module."""
DESCRIPTORS: Final = 3
"""So many files are open at a time while Python looks for a distribution and imports modules."""
SERVER_EXTRA: Final = (
    "An embedded database needs the distribution dodona-server. In a clone of Dodona, run "
    "`pip install ./client .` there, otherwise `pip install 'dodona[server]'`."
)


def new_session(
    acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
    isolation: Isolation | None = None,
    refresh: bool | None = None,
) -> Session:
    """Return a session that no other client uses. Raises InvalidRequest."""
    check_acknowledgement(acknowledgement)
    check_isolation(isolation)
    if refresh is not None:
        check_flag(refresh, "refresh")
    return Session(
        instant_us=instant_us,
        unix_us=_unix_us,
        dice=random.random,
        acknowledgement=acknowledgement,
        isolation=isolation,
        refreshes=refresh,
    )


def instant_us() -> int:
    """Return the monotonic time in microseconds."""
    return time.monotonic_ns() // 1000


def _unix_us() -> int:
    return time.time_ns() // 1000


@functools.cache
def load_embedded() -> Any:
    """Return the module behind `open`. The metadata of the servers' distribution names it, because
    the light client does not know the servers. Raises InvalidRequest without the server extra, and
    Overloaded."""
    need_descriptors(DESCRIPTORS)  # without them, Python finds nothing, and remembers that
    from importlib.metadata import distribution  # slow to import, and only `open` needs it

    try:
        # One distribution: to look for the group in all of them takes three times as long.
        registered = distribution(SERVERS).entry_points.select(group=DATABASES, name="embedded")
        modules = [it.load() for it in registered]
    except ImportError as error:  # also if there is no such distribution
        raise InvalidRequest(SERVER_EXTRA, missing=error.name) from error
    if not modules:
        raise InvalidRequest(SERVER_EXTRA, missing=SERVERS)
    return modules[0]


def check_folder(path: FolderPath) -> str:
    """Return the path of a data folder as text. Raises InvalidRequest."""
    text: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidRequest(
            f"A data folder's path must be a str or a Path, not {type(path).__name__}."
        )
    if not text or "\0" in text:
        raise InvalidRequest("A data folder's path is empty or has a NUL in it. Pass another path.")
    if "://" in text:
        raise InvalidRequest(
            "This is a URL. Use `connect` for a cluster, or pass a folder.", url=hide_password(text)
        )
    return text
