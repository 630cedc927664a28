"""What commits wait for is an option of every way to open a client, and checked there."""

from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona.errors import InvalidRequest
from dodona.types import TransactionId

NOWHERE = "http://127.0.0.1:1"
WRONG: list[Any] = ["Prepared", "", None, 1, ["prepared"]]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_invalid_acknowledgement_is_refused_before_a_client_opens(
    wrong: Any, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="acknowledgement is one of"):
        dodona.connect(NOWHERE, acknowledgement=wrong)
    with pytest.raises(InvalidRequest, match="acknowledgement is one of"):
        dodona.open(tmp_path / "data", acknowledgement=wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", WRONG)
async def test_the_asyncio_client_refuses_an_invalid_acknowledgement(
    wrong: Any, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="acknowledgement"):
        await dodona.aio.connect(NOWHERE, acknowledgement=wrong)
    with pytest.raises(InvalidRequest, match="acknowledgement"):
        await dodona.aio.open(tmp_path / "data", acknowledgement=wrong)


def test_the_default_is_prepared(tmp_path: Path) -> None:
    with dodona.open(tmp_path / "data") as db:
        assert db._session._context.acknowledgement == "prepared"


def test_an_embedded_database_takes_either(tmp_path: Path) -> None:
    with dodona.open(tmp_path / "data", acknowledgement="decided") as db:
        assert db._session._context.acknowledgement == "decided"
        columns = [
            {"name": "k", "type": "int64", "sort_order": "ascending"},
            {"name": "v", "type": "int64"},
        ]
        db.create_table("//t", columns, pivot_keys=[[], [100]], mount=True)
        with db.begin() as tx:
            tx.insert_rows("//t", [{"k": 1, "v": 1}, {"k": 100, "v": 1}])
        assert tx.id is not None
    with dodona.open(tmp_path / "data") as db:
        assert db.outcome(tx.id).timestamp == tx.commit_timestamp
        assert len(list(db.select("//t"))) == 2


@pytest.mark.anyio
async def test_an_embedded_asyncio_database_accepts_acknowledgement_decided(tmp_path: Path) -> None:
    async with await dodona.aio.open(tmp_path / "data", acknowledgement="decided") as db:
        assert db._session._context.acknowledgement == "decided"
        unheard = await db.generate_timestamp()
        assert (await db.outcome(TransactionId(unheard))).state == "pending"
