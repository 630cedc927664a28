"""Errors of one contender that do not end the benchmark."""

import importlib
from typing import Any


class ContenderError(Exception):
    """Base class: this contender leaves its row, and the report says why."""


class ContenderMissing(ContenderError):
    """A binary or a client library is not on this machine."""


class ContenderFailed(ContenderError):
    """The system, or its client, did not do what the benchmark asked for."""


def client_library(name: str) -> Any:
    """Import an optional client library by name. Raises ContenderMissing with what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ContenderMissing(f"the Python client {name!r} can't be imported: {error}") from error
