"""What tests of peers share: a folder that servers of other users reach."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a server can reach which runs as another user."""
    with TemporaryDirectory(prefix="dodona-peers-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
