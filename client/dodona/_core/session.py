"""One client's session: all operations on rows, on the tree and on bulk loads. Pure."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from dodona._core.loads.leases import Leases
from dodona._core.loads.ticket import Published, WriteMode
from dodona._core.named_leases import NamedLeases
from dodona._core.protocol.steps import Protocol
from dodona._core.row_session import RowSession

if TYPE_CHECKING:
    from dodona._core.loads.one_call import Pending
    from dodona._core.loads.session import LoadSession


class Session(RowSession):
    """All operations of one client."""

    def _complete(self) -> None:
        self.leases = Leases(self._context)
        self.named_leases = NamedLeases(self)
        """The operations on named leases."""

    @cached_property
    def loads(self) -> "LoadSession":
        """The operations on bulk loads."""
        from dodona._core.loads.session import LoadSession

        return LoadSession(self, self._context)

    def write(
        self, path: str, data: Any, mode: WriteMode = "upsert"
    ) -> "Protocol[Published | Pending]":
        """Write data of any kind, or return the bulk load that writes it. See `one_call`."""
        from dodona._core.loads import one_call

        return one_call.write(self, self._context, path, data, mode)
