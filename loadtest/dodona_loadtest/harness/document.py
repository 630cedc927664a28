"""Sections of a document that programs write anew, each between two markers that bear its name.

Owns: the markers. All else in the document is somebody's own words and stays as it is.
"""

from pathlib import Path


def check_place(path: Path, name: str) -> None:
    """Raises ValueError where the section has no place. A file that is not there yet is one."""
    if path.exists():
        _split(path, name)


def write_section(path: Path, name: str, text: str) -> None:
    """Put the text where the section's last one was. Raises ValueError as `check_place`."""
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
