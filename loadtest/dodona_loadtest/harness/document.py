"""Sections of a document that programs write, each between two markers that bear its name.

Owns: the markers. All else in the document is written by people and stays as it is.
"""

from pathlib import Path


def check_place(path: Path, name: str) -> None:
    """Raise ValueError if the section has no place in the document. A missing file has one."""
    if path.exists():
        _split(path, name)


def write_section(path: Path, name: str, text: str) -> None:
    """Replace the section's last text by this one. Raises ValueError as `check_place` does."""
    before, after = _split(path, name) if path.exists() else ("", "\n")
    begin, end = _markers(name)
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def _split(path: Path, name: str) -> tuple[str, str]:
    begin, end = _markers(name)
    before, is_begun, rest = path.read_text("utf-8").partition(begin)
    _, is_ended, after = rest.partition(end)
    if not is_begun or not is_ended:
        raise ValueError(f"{path} has no place for it: no lines {begin} and {end}")
    return before, after


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
