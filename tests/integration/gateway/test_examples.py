"""The examples of the OpenAPI document are one story, and a real gateway tells it alike."""

from typing import Any, Final

import msgspec
import pytest

from dodona_gateway.core.examples import ACCOUNTS, EXAMPLES, TRANSACTION
from integration.gateway.rest import BY_NAME, Rest

pytestmark = pytest.mark.integration

ROWS: Final = (
    b'{"id": 1, "owner": "ann", "balance": 70}\n{"id": 2, "owner": "bob", "balance": 20}\n'
)
OF_THE_DAY: Final = {
    *("address", "cell", "created_us", "delete_timestamps", "first", "gateway", "proxies"),
    *("revision", "revoked_us", "size_bytes", "start_timestamp", "tablet", "tablet_count"),
    *("timestamp", "token", "transaction", "write_timestamps"),
}
"""Fields whose values are others each time; but for them an answer is as its example."""


class Story:
    """Where it has got to: which transaction is under way, and which token was made."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._transaction = ""
        self._token = ""

    def tell(self, operation: str) -> Any:
        """One operation. → its answer."""
        request = EXAMPLES[operation].request
        if operation == "abort_transaction":  # the first one is committed
            self.tell("begin_transaction")
        if operation == "bulk_write":
            form = ("application/x-ndjson", ROWS)
            answer = self._rest.send(operation, content=form, **request)
        elif operation == "revoke_token":
            answer = self._rest.send(operation, id=self._token)
        else:
            answer = self._rest.send(operation, self._transaction, **request)
        assert answer.status_code == BY_NAME[operation].status, f"{operation}: {answer.text}"
        if operation == "bulk_read":
            rows = [msgspec.json.decode(line) for line in answer.content.splitlines()]
            assert rows == [{"id": 1, "balance": 70}, {"id": 2, "balance": 20}]
            return {}
        found = answer.json()
        self._transaction = found.get("transaction", self._transaction)
        if operation == "create_token":
            self._token = found["about"]["id"]
        return found


def likeness(value: Any, name: str = "") -> Any:
    """A value with what is of the day taken for its type."""
    if isinstance(value, dict):
        return {key: likeness(it, key) for key, it in value.items()}
    is_of_the_day = name in OF_THE_DAY or (name == "id" and isinstance(value, str))
    if isinstance(value, list):
        return (
            sorted({type(it).__name__ for it in value})
            if is_of_the_day
            else ([likeness(it) for it in value])
        )
    return type(value).__name__ if is_of_the_day else value


@pytest.mark.part("REST as its documents say")
def test_the_examples_play_as_they_are_written(rest: Rest) -> None:
    rest.http.headers["accept"] = "application/json, application/x-ndjson"
    story = Story(rest)
    for operation, example in EXAMPLES.items():
        answer = story.tell(operation)
        if operation == "get_cluster":
            del answer["cells"][1:]  # the example has one
        if operation == "get_copies":
            assert answer == {"logs": [], "silent_cells": []}, "this cluster has no copies"
            continue
        assert likeness(answer) == likeness(example.answer), operation
    assert rest("list_tables", prefix="//bank")["paths"] == [ACCOUNTS]
    for path in ("//bank", "//jobs"):
        rest("remove_node", path=path, recursive=True)


def test_ids_look_as_they_do_in_the_examples(rest: Rest) -> None:
    begun = rest("begin_transaction")["transaction"]
    lengths = [len(it) for it in TRANSACTION.split("-")]
    assert all(len(it) <= most for it, most in zip(begun.split("-"), lengths, strict=True))
    assert rest("abort_transaction", begun) == {}
