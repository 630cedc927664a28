"""The list-append checker: it judges snapshot isolation only by what clients saw.

Owns: `check_appends`. It uses no timestamp of the database and no dump. The list itself shows the
order of all commits to it, and a contradiction is a cycle. So the checker also finds errors that a
database repeats in all of its records.

It demands *strong* snapshot isolation. Each transaction sees one state of the database, no older
than the commits acknowledged before it began. Of transactions that commit to the same list, none
commits between the start and the commit of another. Write skew is allowed. So is a reader that sees
a state of no serial order. The reads of a transaction that did not commit are of a snapshot too.

A transaction does not see its own appends. The snapshot must be one that was taken for the
transaction. Readers of a past of their own choice do not belong in the history.

The work is linear, except for sorting, as long as nothing is wrong.
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
    """Return all violations. `is_serializable` is for runs in which writers lock all that they
    read.

    A transaction without a sure answer committed if any reader saw an element of its.
    """
    transactions = list(transactions)
    orders = Orders(transactions, keeps_real_time=order == "real time")
    cycles = find_cycles(transactions, orders, order, is_serializable=is_serializable)
    return [*orders.violations, *cycles]
