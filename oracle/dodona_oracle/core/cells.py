"""Presence: the cells and proxies that the master has heard of lately.

Owns: their addresses and liveness, which are in memory only. After a restart the master learns them
from the next heartbeats. A cell has one address at a time. A second process that claims a living
cell is refused, because two processes must never write the data of one cell. There is one
exception: a process that owns the log of the cell in a later epoch has taken the cell over. Imports
no I/O and no clock.
"""

from typing import Final

import msgspec

from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.types import CellId, Now

CELL_ALIVE_US: Final = 2_000_000
PROXY_ALIVE_US: Final = 5_000_000
CELLS_MAX: Final = 4096
PROXIES_MAX: Final = 4096
ADDRESS_LENGTH_MAX: Final = 256
CELL_ID_MAX: Final = (1 << 31) - 1


class _Sighting(msgspec.Struct):
    """The address of a cell, and when the master last heard of the cell."""

    address: str
    instant_us: int
    epoch: int


class Presence:
    """The living cells and proxies. `now` decides which of them are alive."""

    def __init__(self) -> None:
        self._cells: dict[CellId, _Sighting] = {}
        self.move_count = 0
        """How many times a cell was seen first, or seen at a new address."""
        self._proxies: dict[str, int] = {}

    def check_cell(self, cell: CellId, address: str, epoch: int, now: Now) -> None:
        """Raise InvalidRequest or LimitExceeded if a process at `address` may not be this cell. It
        owns the cell's log in this epoch."""
        if not 0 <= cell <= CELL_ID_MAX:
            raise InvalidRequest(f"The id of a cell is 0 to {CELL_ID_MAX}.", cell=cell)
        _check_address(address)
        known = self._cells.get(cell)
        if known is None:
            if len(self._cells) >= CELLS_MAX:
                raise LimitExceeded(f"There are {CELLS_MAX} cells already.", cell=cell)
        elif not self.is_alive(cell, now):
            return
        elif epoch < known.epoch:
            raise InvalidRequest(
                f"The process at {known.address} took cell {cell} over, in epoch {known.epoch} of "
                f"its log. This process owned the log in epoch {epoch}: it ends by itself.",
                cell=cell,
                address=address,
            )
        elif known.address != address and epoch == known.epoch:
            raise InvalidRequest(
                f"Cell {cell} is alive at {known.address}. Stop that process, or use another id.",
                cell=cell,
                address=address,
            )

    def see_cell(self, cell: CellId, address: str, epoch: int, now: Now) -> None:
        """Note that the cell is alive at this address, which was checked before."""
        if self.address(cell) != address:
            self.move_count += 1
        self._cells[cell] = _Sighting(address, now.instant_us, epoch)

    def see_proxy(self, address: str, now: Now) -> None:
        """Note that a proxy is alive at this address. Raises InvalidRequest, LimitExceeded."""
        _check_address(address)
        if address not in self._proxies and len(self._proxies) >= PROXIES_MAX:
            self._proxies = {it: self._proxies[it] for it in self.proxies(now)}
            if len(self._proxies) >= PROXIES_MAX:
                raise LimitExceeded(f"There are {PROXIES_MAX} proxies already.", address=address)
        self._proxies[address] = now.instant_us

    def is_alive(self, cell: CellId, now: Now) -> bool:
        """Return whether the master heard of the cell lately."""
        known = self._cells.get(cell)
        return known is not None and now.instant_us - known.instant_us <= CELL_ALIVE_US

    def address(self, cell: CellId) -> str | None:
        """Return the last address of the cell, or None if the cell was never seen."""
        known = self._cells.get(cell)
        return None if known is None else known.address

    def epoch(self, cell: CellId) -> int:
        """Return the epoch of the cell's last heartbeat. 0: its log has no copies elsewhere, or it
        was never seen."""
        known = self._cells.get(cell)
        return 0 if known is None else known.epoch

    def addresses(self) -> dict[CellId, str]:
        """Return the last address of each known cell, whether it is alive or not."""
        return {cell: known.address for cell, known in sorted(self._cells.items())}

    def cells(self) -> list[CellId]:
        """Return all known cells, sorted."""
        return sorted(self._cells)

    def cells_alive(self, now: Now) -> list[CellId]:
        """Return the living cells, sorted."""
        return [cell for cell in sorted(self._cells) if self.is_alive(cell, now)]

    def proxies(self, now: Now) -> list[str]:
        """Return the addresses of the living proxies, sorted."""
        return sorted(
            address
            for address, instant_us in self._proxies.items()
            if now.instant_us - instant_us <= PROXY_ALIVE_US
        )


def _check_address(address: str) -> None:
    is_short = 0 < len(address) <= ADDRESS_LENGTH_MAX
    if not is_short or not address.isascii() or not address.isprintable() or " " in address:
        raise InvalidRequest(
            f"An address is a URL of at most {ADDRESS_LENGTH_MAX} characters.", address=address[:80]
        )
