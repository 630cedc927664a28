"""One client's session: all operations on rows, on the tree and on bulk loads. Pure."""

from dodona._core.loads.leases import Leases
from dodona._core.loads.session import LoadSession
from dodona._core.row_session import RowSession


class Session(RowSession):
    """All operations of one client."""

    def _complete(self) -> None:
        self.loads = LoadSession(self, self._context)
        """The operations on bulk loads."""
        self.leases = Leases(self._context)
