"""The list-append checker: snapshot isolation from what clients saw, and nothing else.

Owns: `check_appends`. It uses no timestamp of the database and no dump: the order of all commits to
a list is read off the list itself, and whatever does not go together is a cycle. So it also finds
what a database tells wrongly in every record it leaves.

What is demanded is *strong* snapshot isolation: each transaction sees one state of the database,
no older than what was acknowledged before it began; and nobody commits to a list between the start
and the commit of another who does. Write skew is allowed, and so is a reader that sees what no
serial order has. The reads of a transaction that did not commit are of a snapshot too.
A transaction does not see its own appends. The snapshot must be one that was taken for the
transaction: readers of a past of their own choice do not belong into the history.
Linear but for sorting, as long as nothing is wrong.
Must not import: any core.
"""

from collections.abc import Iterable

from dodona_loadtest.checkers.appends import AppendTransaction
from dodona_loadtest.checkers.list_append_cycles import Order, find_cycles
from dodona_loadtest.checkers.list_append_orders import Orders
from dodona_loadtest.checkers.violation import Violation


def check_appends(
    transactions: Iterable[AppendTransaction],
    *,
    order: Order = "real time",
    is_serializable: bool = False,
) -> list[Violation]:
    """All that is wrong. `is_serializable` is for runs in which all that writers read is locked.

    A transaction that was told nothing sure committed if anybody saw an element of its.
    """
    transactions = list(transactions)
    orders = Orders(transactions, keeps_real_time=order == "real time")
    cycles = find_cycles(transactions, orders, order, is_serializable=is_serializable)
    return [*orders.violations, *cycles]
