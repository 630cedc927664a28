"""A batch of requests: what it may be asked for, before any of them runs."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dodona.errors import InvalidRequest
from dodona_ytsaurus.commands.batch import execute_batch
from dodona_ytsaurus.terms.parameters import Parameters


def nothing(_: str) -> Any:
    raise AssertionError("the batch is empty")


def batch(**parameters: Any) -> Any:
    call: Any = SimpleNamespace(parameters=Parameters({"requests": [], **parameters}))
    return asyncio.run(execute_batch(call, nothing)).value


@pytest.mark.parametrize("given", [{}, {"concurrency": 1}, {"concurrency": 10_000}])
def test_a_batch_has_a_concurrency(given: dict[str, int]) -> None:
    assert batch(**given) == {"results": []}


@pytest.mark.parametrize("count", [0, -1])
def test_no_concurrency_is_not_the_default(count: int) -> None:
    with pytest.raises(InvalidRequest, match="'concurrency' must be 1 or more"):
        batch(concurrency=count)
