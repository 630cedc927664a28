"""One client's session: all operations on rows and on the tree, and bulk loads. Pure."""

from dodona._core.loads.leases import Leases
from dodona._core.loads.session import LoadSession
from dodona._core.row_session import RowSession


class Session(RowSession):
    """Every operation of a client."""

    def _complete(self) -> None:
        self.loads = LoadSession(self, self._context)
        """Bulk loads."""
        self.leases = Leases(self._context)
