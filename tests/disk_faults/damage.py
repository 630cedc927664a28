"""Disks that break their promises: what no power cut leaves, and a store has to notice.

Owns: the kinds of damage, and their drawing. What is damaged was written, and is more than a page
long: a lock that says who has a folder says nothing of what is in it.
"""

from collections.abc import Sequence
from random import Random
from typing import Final, Literal, NamedTuple, get_args

from disk_faults.disk import SECTOR_BYTES, Disk, Kept
from disk_faults.images import PAGE_BYTES, Content, Image
from disk_faults.operations import Operation, Written
from disk_faults.syscalls import MAPPED_NAMES

Damage = Literal["bit flipped", "sector zeroed", "page misplaced", "write lost"]
DAMAGES: Final[tuple[Damage, ...]] = get_args(Damage)


class Damaged(NamedTuple):
    """A disk after all of a recording, but for one lie, and where that is."""

    image: Image
    name: str
    offset: int


def draw_damage(operations: Sequence[Operation], kind: Damage, random: Random) -> Damaged:
    """Of what the operations come to."""
    disk = Disk()
    disk.do(operations)
    whole = disk.image(Kept())
    name = random.choice([it for it, content in whole.files.items() if _is_data(it, content)])
    if kind == "write lost":
        return _lose_write(operations, name, disk.paths(Kept())[name], random)
    content = whole.files[name]
    numbers = sorted(content.pages)
    number = random.choice(numbers)
    page = bytearray(content.pages[number])
    at = 0
    if kind == "bit flipped":
        at = random.randrange(PAGE_BYTES)
        page[at] ^= 1 << random.randrange(8)
    elif kind == "sector zeroed":
        at = random.randrange(0, PAGE_BYTES, SECTOR_BYTES)
        page[at : at + SECTOR_BYTES] = bytes(SECTOR_BYTES)
    else:
        page[:] = content.pages[random.choice(numbers)]
    damaged = Content(content.size_bytes, {**content.pages, number: bytes(page)})
    return Damaged(
        Image(whole.folders, {**whole.files, name: damaged}), name, number * PAGE_BYTES + at
    )


def _lose_write(operations: Sequence[Operation], name: str, file: int, random: Random) -> Damaged:
    """The disk said that it had written, and did not. Not so with the head of the last commit:
    nobody but that write says that there was one."""
    written = [it for it in operations if isinstance(it, Written) and it.file == file]
    last_head = next((it for it in reversed(written) if it.is_synced), None)
    lost = random.choice([it for it in written if it is not last_head])
    disk = Disk()
    disk.do([it for it in operations if it is not lost])
    return Damaged(disk.image(Kept()), name, lost.offset)


def _is_data(name: str, content: Content) -> bool:
    return content.size_bytes >= PAGE_BYTES and name.rpartition("/")[2] not in MAPPED_NAMES
