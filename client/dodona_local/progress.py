"""How long work tells whoever watches how far it is.

Owns: the seam between commands that take long and what shows them (`progress_screen`).
"""


class Progress:
    """Who watches. This one looks away. `advance` may be called by any thread."""

    def begin(self, name: str, total: int | None, unit: str) -> None:
        """A step begins; the one before it has ended. None: nobody knows how much there is."""

    def advance(self, count: int) -> None:
        """So much more is done: less, where something is done again."""
