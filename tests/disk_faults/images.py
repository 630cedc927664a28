"""What a disk holds: folders, and files by their pages.

Owns: the image of a disk, and its ways to and from a real folder. Pages of zeros are left out, so
that an image costs what was written, and not how long its files are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = 4096
"""What the kernel writes, and takes for clean, at once."""
ZEROS: Final = bytes(PAGE_BYTES)


@dataclass(frozen=True, slots=True)
class Content:
    """Of one file: its size, and by number the whole pages that are not all zeros."""

    size_bytes: int
    pages: Mapping[int, bytes]

    @classmethod
    def of(cls, data: bytes) -> "Content":
        pages = {
            at // PAGE_BYTES: data[at : at + PAGE_BYTES].ljust(PAGE_BYTES, b"\x00")
            for at in range(0, len(data), PAGE_BYTES)
        }
        return cls(len(data), {at: page for at, page in pages.items() if page != ZEROS})

    def data(self) -> bytes:
        """All of it."""
        whole = bytearray(self.size_bytes)
        for at, page in self.pages.items():
            whole[at * PAGE_BYTES : (at + 1) * PAGE_BYTES] = page
        return bytes(whole[: self.size_bytes])


@dataclass(frozen=True, slots=True)
class Image:
    """What a restart finds: folders by their paths, parents first, and files with their content."""

    folders: tuple[str, ...]
    files: Mapping[str, Content]

    def fingerprint(self) -> int:
        """Equal for equal images, and hardly ever for others."""
        files = frozenset(
            (name, it.size_bytes, frozenset(it.pages.items())) for name, it in self.files.items()
        )
        return hash((frozenset(self.folders), files))


def read_image(folder: Path) -> Image:
    """What is in a folder now."""
    paths = sorted(folder.rglob("*"))
    names = {path: str(path.relative_to(folder)) for path in paths}
    return Image(
        tuple(names[path] for path in paths if path.is_dir()),
        {names[path]: Content.of(path.read_bytes()) for path in paths if path.is_file()},
    )


def write_image(image: Image, folder: Path) -> None:
    """Make an empty folder what the image says."""
    for name in image.folders:
        (folder / name).mkdir()
    for name, content in image.files.items():
        with (folder / name).open("wb", buffering=0) as file:
            for at, page in content.pages.items():
                file.seek(at * PAGE_BYTES)
                file.write(page)
            file.truncate(content.size_bytes)
