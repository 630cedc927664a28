"""Show objects that are no nodes in Dodona, but that YTsaurus's clients look at as nodes: cells and
transactions.

Owns: their paths and attributes. `//sys/tablet_cells` has the cells. `#id`, and for transactions
also `//sys/transactions/id`, is an object by its id, which only its owner sees.
"""

from typing import Any, Final

from dodona_wire.errors import DodonaError, InvalidRequest, TransactionClosed, TransactionNotFound
from dodona_ytsaurus.commands.commands import YtCall
from dodona_ytsaurus.commands.transactions import (
    is_master,
    master_session,
    owned_master,
    transaction_of,
)
from dodona_ytsaurus.terms.inside import MISSING, inside
from dodona_ytsaurus.terms.parameters import YtPath
from dodona_ytsaurus.terms.schemas import CELL_KIND, object_id

CELLS: Final = "//sys/tablet_cells"
TRANSACTIONS: Final = "//sys/transactions/"


def is_object(path: YtPath) -> bool:
    """Return whether a path names an object that is no node of the catalog."""
    return (
        path.node == CELLS or path.node.startswith((CELLS + "/", TRANSACTIONS)) or _is_id(path.node)
    )


def _is_id(node: str) -> bool:
    return node.startswith("#")


async def find_object(call: YtCall, path: YtPath) -> Any:
    """Return the object, one of its attributes, or a part of an attribute's value; `MISSING` if
    there is none. Raises InvalidRequest, Forbidden."""
    if path.node.startswith(CELLS):
        call.principal.check("read", path.node)
        if path.node == CELLS and path.attribute is None:
            return dict.fromkeys(await _cells(call))
        found = await _cell_attributes(call, path.node)
    else:
        call.principal.check_somewhere("read")
        found = await _by_id(call, path.node.removeprefix(TRANSACTIONS).removeprefix("#"))
    if found is None:
        return MISSING
    if path.attribute is None:
        return None
    value: Any = found.get(path.attribute, MISSING) if path.attribute else found
    for name in path.inside:
        value = inside(value, name)
    return value


# ---- cells


async def _cells(call: YtCall) -> dict[str, dict[str, Any]]:
    cluster = await call.client.get_cluster()
    return {
        object_id(it.cell, CELL_KIND): {
            "id": object_id(it.cell, CELL_KIND),
            "type": "tablet_cell",
            "health": "good" if it.is_alive else "failed",
            "tablet_count": it.tablet_count,
            "peers": [{"address": it.address, "state": "leading" if it.is_alive else "none"}],
        }
        for it in cluster.cells
    }


async def _cell_attributes(call: YtCall, node: str) -> dict[str, Any] | None:
    cells = await _cells(call)
    if node == CELLS:
        return {"count": len(cells), "type": "tablet_cell_map"}
    return cells.get(node.removeprefix(CELLS + "/"))


# ---- transactions and locks


async def _by_id(call: YtCall, text: str) -> dict[str, Any] | None:
    try:
        if is_master(text):
            return await _master_attributes(call, text)
        if text in _locks(call):
            return {"id": text, "type": "lock", "state": "acquired"}
        lease_ms = call.gateway.transactions.ping(text, call.owner)
    except (TransactionNotFound, TransactionClosed):
        return None
    except InvalidRequest as error:
        raise InvalidRequest(
            "Only transactions and locks can be found by id. Use the path of the node."
        ) from error
    return {"id": text, "type": "transaction", "timeout": lease_ms}


async def _master_attributes(call: YtCall, text: str) -> dict[str, Any]:
    found = owned_master(call, text)
    # A request under the transaction fails if the transaction has ended in the master.
    await call.run(master_session(call, text).exists("//"))
    return {"id": text, "type": "transaction", "timeout": found.timeout_ms}


def _locks(call: YtCall) -> Any:
    """Return the locks of the command's transaction."""
    its_id = transaction_of(call)
    if its_id is None or not is_master(its_id):
        return ()
    try:
        return owned_master(call, its_id).locks
    except DodonaError:
        return ()
