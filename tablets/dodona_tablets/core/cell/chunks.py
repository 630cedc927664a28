"""Keep the chunks of a cell: those that are open, their numbers, and those on their way.

Owns: the numbers of chunks, the batches in progress, and the orphans that a start found. It also
knows which open chunks have their rows on this machine, in the order of their last use, and which
of them must stay. `upkeep.caching` decides which ones go.

Invariant: no two chunks of a cell have the same number, not even chunks of work that did not end.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_wire.types import TransactionId


class Chunks:
    """The chunks of one cell. Its attributes change only through its methods."""

    def __init__(self) -> None:
        self.open: dict[int, Chunk] = {}
        """The open chunks by number."""
        self.next_number = 1
        self.orphans: tuple[int, ...] = ()
        """The numbers of the chunks that were there at the start and that the log does not name."""
        self.may_have_unused = False
        """Whether a tablet or a load may have released a chunk."""
        self.last_failure: str | None = None
        """The last failure of work on chunks."""
        self._bytes_by_batch: dict[int, int] = {}
        self._here: dict[int, None] = {}
        """The open chunks whose rows are on this machine. Those that were used long ago come
        first."""
        self._holds_by_number: Counter[int] = Counter()
        self.here_bytes = 0
        """The size of the rows of chunks that are on this machine."""
        self.may_be_over = False
        """Whether more is here, or less is held, than at the last look at the limit."""
        self.waiting_writers: dict[TransactionId, int] = {}
        """The transactions that wait for the rows of a chunk, each with the number of it."""

    # Numbers

    def take_number(self) -> int:
        """Return a number that no chunk here has had."""
        self.next_number += 1
        return self.next_number - 1

    def note_number(self, number: int) -> None:
        """Note that a chunk has this number, so that it is not taken again."""
        self.next_number = max(self.next_number, number + 1)

    def restore_numbers(self, next_number: int) -> None:
        """Continue at the number of a checkpoint. Work that did not end may have taken numbers."""
        self.next_number = next_number

    # Open chunks

    def open_found(
        self, chunks: Mapping[int, Chunk], orphans: tuple[int, ...], first_number: int
    ) -> None:
        """Take the chunks that the log names, and the numbers of the other chunks that are there.
        These are not used again, and no number below `first_number` is. Chunks that were used long
        ago come first."""
        for number, chunk in chunks.items():
            self.add(number, chunk)
        self.orphans = orphans
        self.note_number(max((first_number - 1, *orphans)))

    def take_orphans(self) -> tuple[int, ...]:
        """Return the orphans for the last time."""
        orphans, self.orphans = self.orphans, ()
        return orphans

    def add(self, number: int, chunk: Chunk) -> None:
        """Take a chunk that was made just now."""
        self.open[number] = chunk
        if not chunk.is_away:
            self.note_here(chunk)

    def get(self, number: int) -> Chunk | None:
        """Return an open chunk. In replay no chunk is open yet, so it returns None."""
        return self.open.get(number)

    def note_released(self) -> None:
        """Note that a tablet or a load may have released a chunk."""
        self.may_have_unused = True

    def drop_unused(self, used: Iterable[int]) -> tuple[int, ...]:
        """Forget all chunks but these, and return the numbers of the others."""
        self.may_have_unused = False
        kept = dict.fromkeys(used)
        unused = tuple([number for number in self.open if number not in kept])
        for number in unused:
            self._note_gone(number, self.open.pop(number))
        return unused

    # Rows that are here, and rows that are away

    def note_here(self, chunk: Chunk) -> None:
        """Note that the rows of an open chunk are on this machine from now on."""
        self._here[chunk.info.number] = None
        self.here_bytes += chunk.info.size_bytes
        self.may_be_over = True

    def let_go(self, chunk: Chunk) -> Any:
        """Let the rows of a chunk go, and return what keeps their map (see `Chunk.let_go`). Nothing
        may hold it."""
        assert not self.is_held(chunk.info.number), "a chunk goes while it is read"
        kept = chunk.let_go()
        self._note_gone(chunk.info.number, chunk)
        return kept

    def _note_gone(self, number: int, chunk: Chunk) -> None:
        if number in self._here:
            del self._here[number]
            self.here_bytes -= chunk.info.size_bytes

    def by_last_use(self) -> list[Chunk]:
        """Return the chunks whose rows are here. Those that were used long ago come first."""
        return [self.open[number] for number in self._here]

    def take_used(self) -> list[Chunk]:
        """Return the chunks that were read since the last call. They count as used just now."""
        used = [it for it in self.by_last_use() if it.is_used]
        for chunk in used:
            chunk.is_used = False
            self._here[chunk.info.number] = self._here.pop(chunk.info.number)
        return used

    def hold(self, number: int) -> None:
        """Keep the rows of a chunk here once they are here, until as many calls of `release`."""
        self._holds_by_number[number] += 1

    def release(self, number: int) -> None:
        """End one hold."""
        self._holds_by_number[number] -= 1
        if not self._holds_by_number[number]:
            del self._holds_by_number[number]
            self.may_be_over = True

    def is_held(self, number: int) -> bool:
        return number in self._holds_by_number

    # Chunks on their way

    def begin_batch(self, number: int, size_bytes: int) -> None:
        """Note that bulk data is on its way into the chunk of this number. A seal has 0 bytes."""
        self._bytes_by_batch[number] = size_bytes

    def end_batch(self, number: int) -> None:
        del self._bytes_by_batch[number]

    @property
    def batch_count(self) -> int:
        """The number of batches and seals in progress."""
        return len(self._bytes_by_batch)

    @property
    def batch_bytes(self) -> int:
        """The bulk data on its way into chunks."""
        return sum(self._bytes_by_batch.values())

    def note_failure(self, message: str) -> None:
        """Note that work on a chunk has failed."""
        self.last_failure = message
