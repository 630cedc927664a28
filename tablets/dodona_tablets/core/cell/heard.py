"""Remember when other servers were last heard. Owns: these instants, in microseconds."""

from dodona_wire.types import CellId


class Heard:
    """When one cell has heard other servers."""

    def __init__(self) -> None:
        self.cells: dict[CellId, int] = {}
        self.oracle_us = 0
        self.oracle_failure: str | None = None
        """Why the oracle did not answer, as the shell reported it last."""

    def note_cell(self, cell: CellId, now_us: int) -> None:
        self.cells[cell] = now_us

    def note_oracle(self, now_us: int) -> None:
        self.oracle_us = now_us

    def note_oracle_time(self, now_us: int) -> None:
        """Note an answer to a question for the time. It ends what is known of a failure."""
        self.oracle_us = now_us
        self.oracle_failure = None

    def note_oracle_failure(self, reason: str) -> None:
        self.oracle_failure = reason
