"""Check which folders of a cluster, or of an embedded database, belong together.

Owns: whether the folder of the master is missing. Only reads.
Must not import: any module that creates files.
"""

from pathlib import Path

from dodona_oracle.shell.store import FILE_NAME
from dodona_tablets.shell.log_check import has_joined
from dodona_wire.net.folder import LOCK_NAME


def lacks_master(path: Path) -> bool:
    """Return whether a cluster or an embedded database lacks its master's store. A cell joins only
    after the master's store is durable, so that store has existed."""
    if (path / "master" / FILE_NAME).exists():
        return False
    is_whole = (path / LOCK_NAME).exists() or (path / "master").is_dir()
    return is_whole and any(has_joined(node) for node in path.glob("node-*"))
