"""The modules of the client that have a twin, and their files.

Owns: which modules these are, and how the generated text is formatted: by ruff, as all other code.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twins.generating import generated, with_origin

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "client" / "dodona"
ORIGINS: Final = {
    "client.py": "aio.py",
    "catalog.py": "aio_catalog.py",
    "changes.py": "aio_changes.py",
    "leases.py": "aio_leases.py",
    "loads.py": "aio_loads.py",
    "local_copy.py": "aio_local_copy.py",
    "reads.py": "aio_reads.py",
    "snapshot.py": "aio_snapshot.py",
    "transaction.py": "aio_transaction.py",
}
"""For each blocking module, the asyncio module of which it is made."""


def text_of(name: str) -> str:
    """Return what the blocking module of this name has to be."""
    origin = ORIGINS[name]
    text = with_origin(generated((FOLDER / origin).read_text("utf-8")), origin)
    return formatted(text, name)


def formatted(text: str, name: str) -> str:
    """Return the text of the module of this name, with its imports in order, without those that it
    does not need, and with lines that are filled. Raises ValueError if it is not Python."""
    path = f"client/dodona/{name}"
    for command in (["check", "--quiet", "--select", "I,F401", "--fix"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", path, "-"]
        done = subprocess.run(ruff, cwd=ROOT, input=text.encode(), capture_output=True, check=False)
        if done.returncode != 0:
            raise ValueError(f"{path}: {(done.stderr or done.stdout).decode()}")
        text = done.stdout.decode()
    return text


def write_all() -> Iterator[str]:
    """Write the files that have changed, and yield their names."""
    texts = {name: text_of(name) for name in ORIGINS}
    for name, text in texts.items():
        path = FOLDER / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            yield name
