"""One client's session: all operations on rows, on the tree and on bulk loads. Pure."""

from typing import Any

from dodona._core.loads import one_call
from dodona._core.loads.leases import Leases
from dodona._core.loads.one_call import Pending, WriteMode
from dodona._core.loads.session import LoadSession
from dodona._core.loads.ticket import Published
from dodona._core.protocol.steps import Protocol
from dodona._core.row_session import RowSession


class Session(RowSession):
    """All operations of one client."""

    def _complete(self) -> None:
        self.loads = LoadSession(self, self._context)
        """The operations on bulk loads."""
        self.leases = Leases(self._context)

    def write(
        self, path: str, data: Any, mode: WriteMode = "upsert"
    ) -> Protocol[Published | Pending]:
        """Write data of any kind, or return the bulk load that writes it. See `one_call`."""
        return one_call.write(self, self._context, path, data, mode)
