"""Report the progress of long work to a watcher.

Owns: the interface between commands that take long and the code that shows them
(`progress_screen`).
"""


class Progress:
    """A watcher of progress. This one shows nothing. Any thread may call `advance`."""

    def begin(self, name: str, total: int | None, unit: str) -> None:
        """Begin a step; the step before it has ended. `total` is None if it is not known."""

    def advance(self, count: int) -> None:
        """Add to the progress. `count` is negative if work is done again."""
