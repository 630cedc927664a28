"""Who is there: the cells and proxies that the master has heard of lately.

Owns: addresses and liveness, all of it in memory: after a restart it is learnt again from the next
heartbeats. A cell has one address at a time: a second process that claims a living cell is turned
away, since two processes must never write one cell's data. Imports no I/O and no clock.
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
    """Where somebody was, and when last heard of."""

    address: str
    instant_us: int


class Presence:
    """The living cells and proxies, by `now`."""

    def __init__(self) -> None:
        self._cells: dict[CellId, _Sighting] = {}
        self.move_count = 0
        """How often a cell was first seen, or seen at another address than before."""
        self._proxies: dict[str, int] = {}

    def check_cell(self, cell: CellId, address: str, now: Now) -> None:
        """May a process at `address` be this cell? Raises InvalidRequest, LimitExceeded."""
        if not 0 <= cell <= CELL_ID_MAX:
            raise InvalidRequest(f"a cell's id is 0 to {CELL_ID_MAX}", cell=cell)
        _check_address(address)
        known = self._cells.get(cell)
        if known is None:
            if len(self._cells) >= CELLS_MAX:
                raise LimitExceeded(f"there are {CELLS_MAX} cells already", cell=cell)
        elif known.address != address and self.is_alive(cell, now):
            raise InvalidRequest(
                f"cell {cell} is alive at {known.address}: stop that process, or use another id",
                cell=cell,
                address=address,
            )

    def see_cell(self, cell: CellId, address: str, now: Now) -> None:
        """The cell is alive at this address (checked before)."""
        if self.address(cell) != address:
            self.move_count += 1
        self._cells[cell] = _Sighting(address, now.instant_us)

    def see_proxy(self, address: str, now: Now) -> None:
        """A proxy is alive at this address. Raises InvalidRequest, LimitExceeded."""
        _check_address(address)
        if address not in self._proxies and len(self._proxies) >= PROXIES_MAX:
            self._proxies = {it: self._proxies[it] for it in self.proxies(now)}
            if len(self._proxies) >= PROXIES_MAX:
                raise LimitExceeded(f"there are {PROXIES_MAX} proxies already", address=address)
        self._proxies[address] = now.instant_us

    def is_alive(self, cell: CellId, now: Now) -> bool:
        """Whether the cell was heard of lately."""
        known = self._cells.get(cell)
        return known is not None and now.instant_us - known.instant_us <= CELL_ALIVE_US

    def address(self, cell: CellId) -> str | None:
        """Where the cell was last heard of, if ever."""
        known = self._cells.get(cell)
        return None if known is None else known.address

    def addresses(self) -> dict[CellId, str]:
        """Where each known cell was last heard of, dead or alive."""
        return {cell: known.address for cell, known in sorted(self._cells.items())}

    def cells(self) -> list[CellId]:
        """All known cells, sorted."""
        return sorted(self._cells)

    def cells_alive(self, now: Now) -> list[CellId]:
        """The living cells, sorted."""
        return [cell for cell in sorted(self._cells) if self.is_alive(cell, now)]

    def proxies(self, now: Now) -> list[str]:
        """The addresses of the living proxies, sorted."""
        return sorted(
            address
            for address, instant_us in self._proxies.items()
            if now.instant_us - instant_us <= PROXY_ALIVE_US
        )


def _check_address(address: str) -> None:
    is_short = 0 < len(address) <= ADDRESS_LENGTH_MAX
    if not is_short or not address.isascii() or not address.isprintable() or " " in address:
        raise InvalidRequest(
            f"an address is a URL of at most {ADDRESS_LENGTH_MAX} characters", address=address[:80]
        )
