"""Check that a load may be published in a tablet, as part of a commit.

Owns: the check that the load is sealed here. `publishing` has the rules of conflicts.
"""

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.tablet.locks import Lost
from dodona_tablets.core.tablet.publishing import check_publication
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import DodonaError, SnapshotTooOld
from dodona_wire.messages.base import failure_of
from dodona_wire.messages.data import Publication


def check_sealed(
    cell: Cell, transaction: Transaction, tablet: Tablet, publication: Publication
) -> Transaction | None:
    """Check the staged chunks of a load against the transactions that they meet. Return the one to
    wait for, or None. Raises Lost."""
    try:
        load = cell.loads.get(publication.load)
        seal = load.seals.get(tablet.assignment.tablet)
        if seal is None or cell.fault_at(FaultPoint.FORGET_SEAL):
            text = "The load is not sealed in this tablet. Seal it, then publish it."
            raise SnapshotTooOld(text, load=publication.load, table=tablet.assignment.path)
        rows = cell.rows_of(tablet, publication)
    except KeyError:
        raise Lost(failure_of(cell.loads.ended_error(publication.load))) from None
    except DodonaError as error:
        raise Lost(failure_of(error)) from None
    return check_publication(transaction, tablet, publication, seal, rows)
