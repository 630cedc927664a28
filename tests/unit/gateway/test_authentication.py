"""Authentication: how often the table is asked, what a failure of it means, and what logs show."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

import dodona.aio
from dodona.errors import InvalidRequest, Overloaded, Unauthenticated, Unavailable
from dodona.types import Now
from dodona_gateway.core.access.grants import parse_grants
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.access.tokens import NewToken, Token, new_token
from dodona_gateway.shell import authentication
from dodona_gateway.shell.authentication import Authenticator
from dodona_gateway.shell.tokens import TokenStore

pytestmark = pytest.mark.anyio
SECOND = 1_000_000
DOWN = Unavailable("the node is away")


def make(place: int = 1, name: str = "ada") -> NewToken:
    return new_token(
        name,
        parse_grants(["write://home/**"]),
        created_us=0,
        random_bytes=lambda count: place.to_bytes(2, "big") * (count // 2),
    )


ADA = make()


class Table:
    """Finds what it has, counts how often it is asked, and waits or fails if told to."""

    def __init__(self, *made: NewToken) -> None:
        self.tokens = {it.token.id: it.token for it in made}
        self.asked: list[list[str]] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.error: Exception | None = None

    async def find_many(self, ids: Sequence[str]) -> dict[str, Token]:
        self.asked.append([*ids])
        found = {id: self.tokens[id] for id in ids if id in self.tokens}
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        return found

    def revoke(self, id: str) -> None:
        self.tokens[id] = msgspec.structs.replace(self.tokens[id], revoked_us=1)


@pytest.fixture
def table() -> Table:
    return Table(ADA)


@pytest.fixture
async def gate(table: Table) -> AsyncIterator[Authenticator]:
    authenticator = Authenticator(table.find_many)
    yield authenticator
    table.is_open.set()
    await authenticator.close()


async def ask(gate: Authenticator, seconds: float = 0, made: NewToken = ADA) -> Principal:
    instant_us = round(seconds * SECOND)
    return await gate.authenticate(f"Bearer {made.text}", Now(instant_us, 10**15 + instant_us))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_token_becomes_a_principal(gate: Authenticator, table: Table) -> None:
    principal = await ask(gate)
    assert (principal.name, principal.token_id) == ("ada", ADA.token.id)
    principal.check("write", "//home/t")
    assert await gate.authenticate(f"OAuth {ADA.text}", Now(0, 10**15)) == principal
    assert len(table.asked) == 1


async def test_a_header_without_a_well_formed_token_causes_no_lookup(
    gate: Authenticator, table: Table
) -> None:
    for header in (None, "", "Bearer dodona_x_y", f"Basic {ADA.text}"):
        with pytest.raises(Unauthenticated):
            await gate.authenticate(header, Now(0, 0))
    assert table.asked == []


async def test_a_revocation_is_in_force_after_a_second(gate: Authenticator, table: Table) -> None:
    await ask(gate)
    table.revoke(ADA.token.id)
    await ask(gate, 0.999)
    with pytest.raises(Unauthenticated, match="revoked"):
        await ask(gate, 1)
    assert len(table.asked) == 2


async def test_a_revocation_by_the_same_gateway_takes_effect_immediately(
    gate: Authenticator, table: Table
) -> None:
    table.is_open.clear()
    early = asyncio.create_task(ask(gate))  # asked before, answered after
    await settle()
    table.revoke(ADA.token.id)
    gate.learn(table.tokens[ADA.token.id], Now(1, 0))
    table.is_open.set()
    await early
    with pytest.raises(Unauthenticated, match="revoked"):
        await ask(gate, 0.5)


async def test_a_token_expires_while_the_token_is_cached(gate: Authenticator, table: Table) -> None:
    expiring = msgspec.structs.replace(ADA.token, expires_us=10**15 + SECOND // 2)
    table.tokens[ADA.token.id] = expiring
    await ask(gate)
    with pytest.raises(Unauthenticated, match="expired"):
        await ask(gate, 0.5)
    assert len(table.asked) == 1


async def test_an_unknown_token_is_remembered_as_such(gate: Authenticator, table: Table) -> None:
    other = make(2)
    for _ in range(3):
        with pytest.raises(Unauthenticated, match="The token is unknown"):
            await ask(gate, 0, other)
    assert len(table.asked) == 1
    table.tokens[other.token.id] = other.token
    await ask(gate, 1, other)


async def test_concurrent_callers_with_one_token_share_one_table_lookup(
    gate: Authenticator, table: Table
) -> None:
    table.is_open.clear()
    waiting = [asyncio.create_task(ask(gate)) for _ in range(50)]
    await settle()
    waiting[0].cancel()
    table.is_open.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert {it.name for it in results[1:] if isinstance(it, Principal)} == {"ada"}
    assert table.asked == [[ADA.token.id]]


async def test_ids_that_wait_are_asked_for_together(table: Table, gate: Authenticator) -> None:
    made = [make(place) for place in range(2, 1_500)]
    table.tokens.update({it.token.id: it.token for it in made})
    await asyncio.gather(*(ask(gate, 0, it) for it in made))
    assert [len(ids) for ids in table.asked] == [1_000, 498]
    await asyncio.gather(*(ask(gate, 1, it) for it in made))
    assert [len(ids) for ids in table.asked[2:]] == [1_000, 498]


async def test_tokens_are_good_for_thirty_seconds_without_the_table(
    gate: Authenticator, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    await ask(gate)
    table.error = DOWN
    with caplog.at_level(logging.WARNING):
        await ask(gate, 5)
        await ask(gate, 5.9)
        assert len(table.asked) == 2, "for a second nobody asks again"
        await ask(gate, 30.9)
        with pytest.raises(Unavailable) as raised:
            await ask(gate, 31.95)
        assert raised.value.__cause__ is DOWN
        table.error = None
        await ask(gate, 33)
    assert caplog.text.count("can't be read (the node is away)") == 1
    assert caplog.text.count("can be read (again)") == 1


async def test_a_token_not_seen_before_is_refused_while_the_table_is_unavailable(
    gate: Authenticator, table: Table
) -> None:
    with pytest.raises(Unauthenticated):
        await ask(gate, 0, make(2))
    table.error = DOWN
    for made in (ADA, make(2)):
        with pytest.raises(Unavailable):
            await ask(gate, 1, made)
    table.error = InvalidRequest("the client is closed")
    with pytest.raises(Unavailable):
        await ask(gate, 2)


async def test_an_authentication_error_names_a_silent_cell_without_its_address(
    gate: Authenticator, table: Table
) -> None:
    """Who asks is nobody yet."""
    table.error = Unavailable("no answer", cell=3, silent_ms=900, address="http://10.0.0.3:4000")
    with pytest.raises(Unavailable) as raised:
        await ask(gate)
    assert raised.value.attributes == {"cell": 3, "silent_ms": 900}


async def test_a_table_that_hangs_is_not_waited_for(
    gate: Authenticator, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(gate)
    monkeypatch.setattr(authentication, "LOOKUP_MS_MAX", 30)
    table.is_open.clear()
    await ask(gate, 2)
    count = len(table.asked)
    await ask(gate, 3.02)
    assert len(table.asked) == count, "it failed 30 ms after it was asked, and a second counts"
    await ask(gate, 20)  # a machine that stands still finds out later that it failed
    assert len(table.asked) == count + 1
    with pytest.raises(Unavailable):
        await ask(gate, 2, make(2))


async def test_a_flood_of_invented_tokens_does_not_block_a_known_token(
    gate: Authenticator, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate._unknown, "_waiting_max", 100)
    await ask(gate)
    table.is_open.clear()
    first = asyncio.create_task(ask(gate, 1, make(2)))
    await settle()
    flood = [asyncio.create_task(ask(gate, 1, make(place))) for place in range(3, 203)]
    await settle()
    assert len([it for it in flood if it.done()]) == 100
    assert all(isinstance(it.exception(), Overloaded) for it in flood if it.done())
    assert len(table.asked) == 2, "one lookup at a time"
    table.is_open.set()
    known = asyncio.create_task(ask(gate, 1))
    await settle()
    assert (await known).name == "ada"
    await asyncio.gather(first, *flood, return_exceptions=True)


async def test_a_known_token_does_not_wait_behind_invented_tokens(
    gate: Authenticator, table: Table
) -> None:
    await ask(gate)
    table.is_open.clear()
    invented = asyncio.create_task(ask(gate, 1, make(2)))
    await settle()
    known = asyncio.create_task(ask(gate, 1))
    await settle()
    assert table.asked[1:] == [[make(2).token.id], [ADA.token.id]], "both are under way"
    table.is_open.set()
    await known
    await asyncio.gather(invented, return_exceptions=True)


async def test_waiting_callers_get_unavailable_when_the_authenticator_closes(table: Table) -> None:
    gate = Authenticator(table.find_many)
    await ask(gate)
    table.is_open.clear()
    waiting = [asyncio.create_task(ask(gate, 40, it)) for it in (ADA, make(2), make(3))]
    await settle()
    await gate.close()
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, Unavailable)
    await gate.close()


async def test_a_revocation_by_one_is_in_force_at_another_within_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a real table, however long its answers take. They ask ten times a second."""
    monkeypatch.setattr(authentication, "LOOKUP_MS_MAX", 60_000)
    async with await dodona.aio.open(tmp_path / "db") as db:
        store, other = TokenStore(db), TokenStore(db)
        gate = Authenticator(other.find_many)
        made = await store.create("ada", ["read:/"])
        instants_us = itertools.count(0, SECOND // 10)

        async def is_refused() -> bool:
            try:
                await gate.authenticate(f"Bearer {made.text}", Now(next(instants_us), 10**15))
            except Unauthenticated as error:
                return "revoked" in error.message
            return False

        for _ in range(3):
            assert not await is_refused()
        await store.revoke(made.token.id)
        assert any([await is_refused() for _ in range(20)])
        await gate.close()


async def test_nothing_that_is_logged_or_shown_has_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With everything logged that anybody logs, and the errors with their traces."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    async with await dodona.aio.open(tmp_path / "db") as db:
        store = TokenStore(db)
        made = await store.create("ada", ["read:/"])
        gate = Authenticator(store.find_many)
        header = f"Bearer {made.text}"
        principal = await gate.authenticate(header, Now(0, 0))
        wrong = made.text[:-5] + ("A" * 5)
        revoked = await store.revoke(made.token.id)
        for text in (header, f"Bearer {wrong}", f"Basic {made.text}", made.text, header + " x"):
            try:
                await gate.authenticate(text, Now(5 * SECOND, 0))
            except Unauthenticated as error:
                logging.getLogger("test").exception("refused")
                shown += [repr(error), str(error), repr(error.attributes)]
        shown += [repr(it) for it in (made, made.token, principal, revoked, gate, store)]
        shown += [repr(await store.list()), repr(await store.find(made.token.id))]
        shown.append(repr(await db.select("//sys/tokens")))
        await gate.close()
    secret = made.text[-43:]
    text = "\n".join([*shown, caplog.text])
    assert "The token is unknown" in text, "something was logged"
    assert secret not in text
    assert secret[:12] not in text
    digest = made.token.secret_sha256
    assert not [it for it in shown[:-1] if repr(digest)[2:-1] in it or digest.hex() in it]
