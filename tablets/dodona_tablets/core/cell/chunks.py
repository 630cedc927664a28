"""Keep the chunks of a cell: those that are open, their numbers, and those on their way.

Owns: the numbers of chunks, the batches in progress, and the orphans that a start found.

Invariant: no two chunks of a cell have the same number, not even chunks of work that did not end.
"""

from collections.abc import Iterable, Mapping

from dodona_tablets.core.rows.chunks.chunk import Chunk


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
        These are not used again, and no number below `first_number` is."""
        self.open.update(chunks)
        self.orphans = orphans
        self.note_number(max((first_number - 1, *orphans)))

    def take_orphans(self) -> tuple[int, ...]:
        """Return the orphans for the last time."""
        orphans, self.orphans = self.orphans, ()
        return orphans

    def add(self, number: int, chunk: Chunk) -> None:
        """Take a chunk that was made just now."""
        self.open[number] = chunk

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
            del self.open[number]
        return unused

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
