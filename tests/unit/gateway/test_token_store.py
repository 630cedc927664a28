"""The table of tokens, in an embedded database."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dodona.aio
from dodona.aio import AsyncClient
from dodona.errors import DataCorrupted, InvalidRequest, LimitExceeded, RowNotFound
from dodona_gateway.core.access.grants import TOKENS
from dodona_gateway.core.access.tokens import accept, parse_token
from dodona_gateway.shell import tokens
from dodona_gateway.shell.tokens import (
    ENDED_KEPT_US,
    TokenStore,
    ensure_first_token,
    read_first_token,
)

pytestmark = pytest.mark.anyio
NOBODYS = "0123456789abcdef"


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with await dodona.aio.open(tmp_path / "db") as client:
        yield client


class Clock:
    def __init__(self) -> None:
        self.unix_us = 1_000

    def __call__(self) -> int:
        return self.unix_us


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(db: AsyncClient, clock: Clock) -> TokenStore:
    return TokenStore(db, unix_us=clock)


async def test_a_table_is_made_by_the_first_token_and_not_by_a_question(
    db: AsyncClient, store: TokenStore
) -> None:
    assert await store.find(NOBODYS) is None
    assert await store.list() == []
    assert not await db.exists(TOKENS)
    made = await store.create("ada", ["write://home/bank/**", "read:/"], 5_000)
    assert await store.find(made.token.id) == made.token
    assert await store.find_many([NOBODYS, made.token.id]) == {made.token.id: made.token}
    assert accept(made.token, parse_token(made.text), 4_999) == await store.find(made.token.id)
    (row,) = await db.select(TOKENS)
    assert row["grants"] == ["write://home/bank/**", "read://**"]
    assert (row["created_us"], row["expires_us"], row["revoked_us"]) == (1_000, 5_000, None)
    assert made.text[-43:] not in repr(row)


async def test_a_list_is_in_the_order_in_which_they_were_made(
    store: TokenStore, clock: Clock
) -> None:
    made = []
    for name in ("c", "a", "b"):
        clock.unix_us += 1
        made.append((await store.create(name, ["read:/"])).token)
    assert await store.list() == made


async def test_a_token_is_revoked_once(store: TokenStore, clock: Clock) -> None:
    made = await store.create("ada", ["read:/"])
    clock.unix_us = 2_000
    revoked = await store.revoke(made.token.id)
    assert revoked.revoked_us == 2_000
    assert await store.find(made.token.id) == revoked
    clock.unix_us = 3_000
    assert await store.revoke(made.token.id) == revoked
    assert (await store.expire(made.token.id, 9_000)).revoked_us == 2_000


async def test_the_expiry_of_a_token_can_be_changed_and_removed(store: TokenStore) -> None:
    made = await store.create("ada", ["read:/"], 9_000)
    assert (await store.expire(made.token.id, 8_000)).expires_us == 8_000
    assert (await store.expire(made.token.id, None)).expires_us is None
    assert (await store.find(made.token.id)) == msgspec.structs.replace(made.token, expires_us=None)


@pytest.mark.parametrize("change", ["revoke", "expire"])
async def test_only_a_token_that_is_there_is_changed(store: TokenStore, change: str) -> None:
    call: Callable[[str], Any] = {
        "revoke": store.revoke,
        "expire": lambda id: store.expire(id, 5_000),
    }[change]
    with pytest.raises(RowNotFound) as raised:
        await call(NOBODYS)
    assert raised.value.attributes == {"key": {"id": NOBODYS}}
    with pytest.raises(InvalidRequest):
        await call("whoever makes a token")
    with pytest.raises(InvalidRequest, match="in the past"):
        await store.expire(NOBODYS, 1_000)


@pytest.mark.parametrize(
    ("name", "grants", "expires_us"),
    [
        ("", ["read:/"], None),
        ("ada", [], None),
        ("ada", ["reads:/"], None),
        ("ada", "read:/", None),
        ("ada", ["read:/"], 1_000),
    ],
)
async def test_an_invalid_request_for_a_token_does_not_create_the_token_table(
    db: AsyncClient, store: TokenStore, name: str, grants: Any, expires_us: int | None
) -> None:
    with pytest.raises(InvalidRequest):
        await store.create(name, grants, expires_us)
    assert not await db.exists(TOKENS)


async def test_tokens_are_bounded_and_go_thirty_days_after_their_end(
    store: TokenStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "TOKENS_MAX", 3)
    expiring = await store.create("expiring", ["read:/"], 2_000)
    revoked = await store.create("revoked", ["read:/"])
    await store.revoke(revoked.token.id)
    clock.unix_us = 2_000 + ENDED_KEPT_US
    kept = await store.create("kept", ["read:/"])
    listed = [it.id for it in await store.list()]
    assert listed == [expiring.token.id, kept.token.id], "the other ended 1 ms before"
    await store.create("another", ["read:/"])
    with pytest.raises(LimitExceeded):
        await store.create("one too many", ["read:/"])
    clock.unix_us += 1
    await store.create("in its place", ["read:/"])
    names = [it.name for it in await store.list()]
    assert sorted(names) == ["another", "in its place", "kept"]


async def test_an_id_that_is_there_is_not_drawn_again(db: AsyncClient) -> None:
    drawn = iter([b"\1", b"\1", b"\1", b"\2", b"\4", b"\4"])
    store = TokenStore(db, random_bytes=lambda count: next(drawn) * count)
    await store.create("ada", ["read:/"])
    await store.create("bob", ["read:/"])
    found = await store.find_many(["01" * 8, "02" * 8, "04" * 8])
    assert {id: it.name for id, it in found.items()} == {"01" * 8: "ada", "04" * 8: "bob"}


async def test_the_first_token_is_made_once(db: AsyncClient, store: TokenStore) -> None:
    texts = await asyncio.gather(*(ensure_first_token(db) for _ in range(8)))
    (text,) = [it for it in texts if it is not None]
    (token,) = await store.list()
    assert accept(token, parse_token(text), 1) == token
    assert (token.name, [*map(str, token.grants)]) == ("first", ["admin://**"])
    await store.revoke(token.id)
    assert await ensure_first_token(db) is None, "who has revoked it, meant to"


async def test_the_first_token_may_be_one_that_the_operator_made(
    db: AsyncClient, store: TokenStore, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    assert read_first_token(file) is None
    text = f"dodona_{'0a' * 8}_{'A' * 43}"
    file.write_text(f"{text}\n")
    given = read_first_token(file)
    assert given == text
    made = await asyncio.gather(*(ensure_first_token(db, given) for _ in range(4)))
    assert sorted(made, key=str) == [None, None, None, text], "every gateway has the file"
    (token,) = await store.list()
    assert accept(token, parse_token(text), 1) == token
    await store.revoke(token.id)
    assert await ensure_first_token(db, given) is None, "it stays revoked"


@pytest.mark.parametrize("content", [b"", b"dodona_0a_hunter2", b"\xff\xfe", b"hunter2"])
def test_what_is_no_token_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(InvalidRequest) as caught:
        read_first_token(file)
    assert "hunter2" not in str(caught.value)


async def test_no_first_token_is_made_where_there_is_another(store: TokenStore) -> None:
    making = asyncio.create_task(store.create("ada", ["read:/"]))
    first = await asyncio.gather(*(store.create_first() for _ in range(4)))
    made = await making
    names = [it.name for it in await store.list()]
    assert len([it for it in first if it is not None]) == names.count("first") <= 1
    assert (await store.find(made.token.id)) == made.token
    assert await store.create_first() is None


async def test_a_table_that_is_away_is_made_good(db: AsyncClient, store: TokenStore) -> None:
    made = await store.create("ada", ["read:/"])
    await db.unmount_table(TOKENS)
    assert await store.find(made.token.id) == made.token
    await db.unmount_table(TOKENS)
    assert (await store.revoke(made.token.id)).name == "ada"
    await db.remove_table(TOKENS)
    assert await store.find(made.token.id) is None
    assert (await store.create("bob", ["read:/"])).token == (await store.list())[0]


@pytest.mark.parametrize(
    "columns",
    [{"grants": ["own:/"]}, {"grants": "read:/"}, {"grants": None}, {"secret_sha256": None}],
)
async def test_a_corrupt_token_row_gives_no_token_and_is_reported_with_its_key(
    db: AsyncClient, store: TokenStore, columns: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = await store.create("ada", ["read:/"])
    other = await store.create("bob", ["read:/"])
    await db.insert_rows(TOKENS, [{"id": made.token.id, **columns}], update=True)
    ids = [made.token.id, other.token.id]
    with caplog.at_level(logging.ERROR):
        assert await store.find_many(ids) == {other.token.id: other.token}
    assert made.token.id in caplog.text
    for call in (store.list(), store.revoke(made.token.id)):
        with pytest.raises(DataCorrupted) as raised:
            await call
        assert raised.value.attributes == {"key": {"id": made.token.id}}
