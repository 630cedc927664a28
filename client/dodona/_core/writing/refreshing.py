"""Send a refused transaction again under a later timestamp, in place of a rerun. Pure.

Owns: after which refusals this is allowed and can help. The rules are in
`docs/explanation/commit-protocol.md#a-new-attempt-instead-of-a-rerun`.

A new attempt has a new id. It writes what the first one wrote, and a cell commits it only if
everything that the transaction has read is as it was. So it is as if the program had run again.
"""

from dodona._core.writing.transaction import TransactionBuffer
from dodona_wire.errors import DodonaError, TransactionConflict
from dodona_wire.types import Key


def may_refresh(transaction: TransactionBuffer, error: DodonaError) -> bool:
    """Return whether the transaction may be sent again. A cell has recorded the refusal, so the
    attempt that it is about never commits. It was refused for a row that another transaction has
    changed, and that the program has not read. Otherwise a new attempt can't help."""
    reads = transaction.reads
    if reads is None or not reads.keeps_all or transaction.locked.owner:
        return False  # rows that came with locks are no recorded reads
    if type(error) is not TransactionConflict or transaction.is_id_known:
        return False  # a program that has the id may ask what became of it
    attributes = error.attributes
    if attributes.get("winner") in transaction.former:
        return True  # an earlier attempt still has its locks in another cell
    is_change = "winner_timestamp" in attributes and "range" not in attributes
    path = attributes.get("table")
    if not is_change or path not in transaction.tables:
        return False
    key = _key_of(transaction, path, attributes.get("key"))
    if key is None or key in transaction.tables[path].locks:
        return False  # a lock without data promises a refusal
    known = reads.tables.get(path)
    return known is None or not known.covers(key)


def _key_of(transaction: TransactionBuffer, path: str, named: object) -> Key | None:
    """Return the key that an error names, or None if the error does not say it."""
    if not isinstance(named, dict):
        return None
    try:
        return transaction.tables[path].schema.key_of(named)
    except DodonaError:
        return None
