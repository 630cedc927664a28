"""Whoever watches the cluster goes on doing so while tokens can't be read, and does no more."""

from collections.abc import Sequence
from typing import Any

import pytest

from dodona.errors import Unauthenticated, Unavailable
from dodona.types import Now
from dodona_gateway.core.access.cache import CacheLimits, Known, TokenCache
from dodona_gateway.core.access.grants import parse_grants
from dodona_gateway.core.access.principal import ANYBODY, Principal
from dodona_gateway.core.access.tokens import Token, new_token
from dodona_gateway.core.console.visit import COOKIE_SECONDS, WATCHED_PATHS, is_watching
from dodona_gateway.shell.authentication import Authenticator
from dodona_gateway.shell.console.console import PAGES
from dodona_gateway.shell.edge import Edge
from dodona_gateway.shell.gateway import refusal
from unit.gateway.exchange import HOST, Exchange, Limits, admit, answer

SECOND, HOUR = 1_000_000, 3_600_000_000
A = Token("a", "ada", bytes(32), parse_grants(["read:/"]), 0)

pytestmark = pytest.mark.anyio


def test_a_watcher_keeps_access_as_long_as_the_cookie_if_tokens_are_unreadable() -> None:
    assert CacheLimits().watching_grace_ms == COOKIE_SECONDS * 1000
    cache = TokenCache()
    cache.learn("a", A, 0)
    for hour in (1, 11):
        assert cache.fall_back("a", hour * HOUR) is None
        assert cache.fall_back("a", hour * HOUR, is_watching=True) is A
        assert cache.look("a", hour * HOUR, is_watching=True) is None, "the table is asked first"
        cache.note_reading(hour * HOUR)
        assert cache.look("a", hour * HOUR, is_watching=True) == Known(A)
        assert cache.look("a", hour * HOUR) is None
        later = hour * HOUR + 10 * SECOND
        assert cache.look("a", later - 1, is_watching=True) == Known(A), (
            "nobody waits again so soon"
        )
        assert cache.look("a", later, is_watching=True) is None, "the table may be back"
        cache.note_reading(None)
    assert cache.fall_back("a", 12 * HOUR + SECOND, is_watching=True) is None
    assert cache.fall_back("b", 0, is_watching=True) is None


async def test_a_known_token_can_watch_until_its_expiry_while_tokens_are_unreadable() -> None:
    made = new_token(
        "ada",
        parse_grants(["read:/"]),
        created_us=0,
        expires_us=10**15 + 2 * HOUR,
        random_bytes=lambda count: b"x" * count,
    )
    is_away = False

    async def find_many(ids: Sequence[str]) -> dict[str, Token]:
        if is_away:
            raise Unavailable("the node is away")
        return {made.token.id: made.token}

    gate = Authenticator(find_many)

    async def ask(instant_us: int, **watching: Any) -> Principal:
        now = Now(instant_us, 10**15 + instant_us)
        return await gate.authenticate(f"Bearer {made.text}", now, **watching)

    await ask(0)
    is_away = True
    for instant_us in (40 * SECOND, HOUR):
        with pytest.raises(Unavailable, match="//sys/tokens can't be read, so the token can't"):
            await ask(instant_us)
        assert (await ask(instant_us + 5 * SECOND, is_watching=True)).name == "ada"
    with pytest.raises(Unauthenticated, match="expired"):
        await ask(2 * HOUR, is_watching=True)
    await gate.close()


def test_only_the_state_of_the_cluster_is_watched() -> None:
    pages = {path for method, path, _ in PAGES if method == "GET"}
    assert pages >= WATCHED_PATHS
    assert is_watching("GET", "/console")
    assert is_watching("HEAD", "/console/parts/transactions")
    for method, path in (
        ("POST", "/console"),
        ("GET", "/console/rows"),
        ("GET", "/console/query"),
        ("POST", "/console/parts/query"),
        ("GET", "/console/tables"),
        ("GET", "/v1/cluster"),
    ):
        assert not is_watching(method, path), path


async def test_the_edge_checks_watchers_separately_from_other_callers() -> None:
    async def watch(text: str | None) -> Principal:
        return ANYBODY

    edge = Edge(
        answer,
        admit,
        Limits(),
        lambda scope: False,
        refusal=refusal,
        is_local=False,
        admit_watcher=watch,
    )
    statuses = []
    for path in ("/console", "/console/rows", "/v1/cluster"):
        exchange = Exchange()
        scope = {"type": "http", "method": "GET", "path": path, "headers": [HOST]}
        await edge(scope, exchange.receive, exchange.send)
        statuses.append(exchange.status)
    assert statuses == [200, 303, 401]
