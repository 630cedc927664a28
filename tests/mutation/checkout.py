"""A private copy of the checkout, whose files may be mutated while others work in the original.

Owns: what is copied, and how the tests find the copy's packages instead of the installed ones: an
editable install only adds the original's folders to the path, and PYTHONPATH comes before them.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

FOLDERS: Final = ("client", "oracle", "tablets", "loadtest", "tests")
"""Each holds packages."""
READ: Final = ("docs", "pyproject.toml")
"""What tests read besides: they compare the tables of a document with those of the code."""


def refresh(root: Path, copy: Path) -> None:
    """Make the copy equal to the checkout. A file that an interrupted run left mutated is written
    again."""
    wanted = {name for name in _names(root) if (root / name).is_file()}
    copy.mkdir(parents=True, exist_ok=True)
    for path in [path for path in copy.rglob("*") if path.is_file()]:
        if path.relative_to(copy).as_posix() not in wanted:
            path.unlink()
    for name in sorted(wanted):
        source, target = root / name, copy / name
        if not target.exists() or source.read_bytes() != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _names(root: Path) -> list[str]:
    """What belongs to the project, changes that are not committed included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    names = [name for name in listing.stdout.split("\0") if name]
    return [it for it in names if it.partition("/")[0] in (*FOLDERS, *READ)]


def environment_of(copy: Path) -> dict[str, str]:
    """The variables of a process that is to use the copy."""
    path = os.pathsep.join(str(copy / folder) for folder in FOLDERS)
    return os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
