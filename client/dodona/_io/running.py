"""What the blocking client does in several steps that are no protocol: what users hand it to run.

Owns: the order of a query's movements, in the caller's thread, and the refusal of functions that
only began to run.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dodona._core import steps
from dodona._core.session import Session
from dodona._core.sql.query import Query
from dodona._core.transaction import TransactionBuffer
from dodona.errors import InvalidRequest

Result = TypeVar("Result")


def finished(result: Result) -> Result:
    """What a function returned, unless it only began. Raises InvalidRequest."""
    if isinstance(result, Coroutine):
        result.close()
        raise InvalidRequest("an async function runs in the transactions of `dodona.aio` only")
    return result


def answer(
    run: Callable[[steps.Protocol[Any]], Any],
    session: Session,
    begin: steps.Protocol[Query],
    buffer: TransactionBuffer | None = None,
) -> Any:
    """The movements of a query, of which two compute and two ask."""
    query = run(begin)
    query.plan()
    run(session.fetch_query(query, buffer))
    return query.answer()
