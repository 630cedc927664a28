"""What both facades begin with: a session on this process's clocks and dice, and the embedded
database's module. Imports no network library."""

import importlib
import os
import random
import time
from typing import Any, Final

# So that a program needs no file to name what it imported: an error that it catches, a type.
import dodona.errors
import dodona.schema
import dodona.types  # noqa: F401
from dodona._core.protocol.context import (
    DEFAULT_ACKNOWLEDGEMENT,
    Acknowledgement,
    check_acknowledgement,
)
from dodona._core.session import Session
from dodona_wire.errors import InvalidRequest
from dodona_wire.net.urls import hide_password

FolderPath = str | os.PathLike[str]
CONNECT_TIMEOUT_MS: Final = 10_000
SERVER_EXTRA: Final = "an embedded database needs the server extra: pip install 'dodona[server]'"


def new_session(acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT) -> Session:
    """A session that nobody else uses. Raises InvalidRequest."""
    check_acknowledgement(acknowledgement)
    return Session(
        instant_us=instant_us,
        unix_us=_unix_us,
        dice=random.random,
        acknowledgement=acknowledgement,
    )


def instant_us() -> int:
    """Monotonic microseconds."""
    return time.monotonic_ns() // 1000


def _unix_us() -> int:
    return time.time_ns() // 1000


def load_embedded() -> Any:
    """The module behind `open`. By name: the light client does not know the servers."""
    try:
        return importlib.import_module("dodona_local.embedded")
    except ImportError as error:
        raise InvalidRequest(SERVER_EXTRA, missing=error.name) from error


def check_folder(path: FolderPath) -> str:
    """The path of a data folder as text. Raises InvalidRequest."""
    text: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidRequest(f"a data folder's path is a str or a Path, not {type(path).__name__}")
    if not text or "\0" in text:
        raise InvalidRequest("a data folder's path is empty or has a NUL in it")
    if "://" in text:
        raise InvalidRequest(
            "this is a URL: `connect` speaks to a cluster", url=hide_password(text)
        )
    return text
