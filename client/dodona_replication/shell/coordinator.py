"""The coordinator: the one place that decides which process owns a log.

Owns: the calls that each coordinator has. `folder` and `etcd` have them for one machine and for
many. `core.coordination` has the answers. Must not import: any coordinator.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from typing import Protocol

from dodona_replication.core.coordination import Answer
from dodona_replication.core.document import Document, Revisioned
from dodona_replication.core.errors import DocumentUnreadable


class Coordinator(Protocol):
    """Reads, compares and watches the documents of logs. Each wait has a limit, which the options
    of the coordinator state in ms."""

    async def read(self, log: str) -> Revisioned | None:
        """Return the document of a log, or None if the log has none.

        The read is linearizable. No process had seen a newer document, or had written one, before
        the call.

        Raises Unavailable if no answer came in time, DocumentUnreadable, InvalidRequest for a bad
        name, and Unauthenticated or Forbidden if the coordinator has users.
        """
        ...

    async def documents(self) -> dict[str, Revisioned]:
        """Return the documents of all logs of this cluster, by log. A document that is not readable
        is left out: a `read` of it says why. Raises as `read` does otherwise, and LimitExceeded for
        more than 100,000 documents."""
        ...

    async def compare(self, log: str, revision: int | None, document: Document) -> Answer:
        """Store a document if the log's document still has this revision (R1). With None, store it
        if there is no document.

        Returns:
            Applied, with the new revision.
            Refused, with the document that is there. This compare is never applied.
            InDoubt, if the answer did not come in time. This compare may be applied at any later
            time. The caller settles the doubt with `Compare.settle` (R3, R16, R17).

        The coordinator never repeats a compare whose answer was lost. If the caller repeats one,
        a refusal may show the caller's own document: `settle` handles it.

        Raises Unavailable if nothing was sent, so the compare is never applied. Raises the other
        errors of `read`, too, and then the compare is not applied either.
        """
        ...

    def watch(self, log: str, after_revision: int) -> AsyncGenerator[Revisioned]:
        """Yield the newest document each time it has changed after a revision. 0: from the first
        document on.

        Revisions rise. Documents in between may be left out, but not the newest one. The watch
        outlives lost connections: it reads again and goes on, and waits for as long as the
        coordinator is away. Close it with `aclose`.

        Raises DocumentMissing if the document was removed, and Unavailable if this coordinator
        can't go on. Raises DocumentUnreadable, InvalidRequest, Unauthenticated and Forbidden as
        `read` does.
        """
        ...

    def silent_us(self) -> int:
        """Return for how long nothing has come from the coordinator, in µs. While a watch is open,
        a sound coordinator says something every few seconds."""
        ...

    async def close(self) -> None:
        """Release what the coordinator holds. Watches end. A repeat is harmless."""
        ...


def readable(
    logs: Iterable[str], read: Callable[[str], Revisioned | None]
) -> dict[str, Revisioned]:
    """Return what `read` returns for each log that has a readable document."""
    found: dict[str, Revisioned] = {}
    for log in logs:
        with suppress(DocumentUnreadable):
            if (seen := read(log)) is not None:
                found[log] = seen
    return found
