"""The rules of the cache, with times that the tests make up."""

import pytest

from dodona_gateway.core.access.cache import CacheLimits, Known, TokenCache
from dodona_gateway.core.access.grants import parse_grants
from dodona_gateway.core.access.tokens import Token

SECOND = 1_000_000
GRANTS = parse_grants(["read:/"])


def token(id: str, created_us: int = 0) -> Token:
    return Token(id, "ada", bytes(32), GRANTS, created_us)


A = token("a")


@pytest.fixture
def cache() -> TokenCache:
    return TokenCache(CacheLimits(tokens_max=2, unknown_ids_max=2))


def test_a_cached_answer_is_valid_for_one_second_from_its_request(cache: TokenCache) -> None:
    assert cache.look("a", 0) is None
    cache.learn("a", A, 5 * SECOND)
    cache.learn("b", None, 5 * SECOND)
    assert cache.look("a", 6 * SECOND - 1) == Known(A)
    assert cache.look("b", 6 * SECOND - 1) == Known(None)
    assert cache.look("a", 6 * SECOND) is None
    assert cache.look("b", 6 * SECOND) is None
    assert (cache.has("a"), cache.has("b"), cache.has("c")) == (True, False, False)


def test_a_token_is_good_for_thirty_seconds_more_if_the_table_fails(cache: TokenCache) -> None:
    cache.learn("a", A, 0)
    cache.learn("b", None, 0)
    assert cache.fall_back("a", 31 * SECOND - 1) is A
    assert cache.fall_back("a", 31 * SECOND) is None
    assert cache.fall_back("b", 0) is None, "it may have become somebody's"
    assert cache.fall_back("c", 0) is None


def test_after_a_failed_read_the_cache_serves_an_old_token_for_one_second(
    cache: TokenCache,
) -> None:
    cache.learn("a", A, 0)
    cache.note_reading(10 * SECOND)
    assert cache.look("a", 11 * SECOND - 1) == Known(A)
    assert cache.look("a", 11 * SECOND) is None, "the table may be back"
    assert cache.look("b", 10 * SECOND) is None
    cache.note_reading(31 * SECOND - 1)
    assert cache.look("a", 31 * SECOND) is None, "the grace is over"
    cache.note_reading(20 * SECOND)
    cache.note_reading(None)
    assert cache.look("a", 20 * SECOND) is None, "the table is back"


def test_the_answer_to_an_older_question_changes_nothing(cache: TokenCache) -> None:
    revoked = token("a", created_us=1)
    cache.learn("a", revoked, 10)
    cache.learn("a", A, 9)
    assert cache.look("a", 11) == Known(revoked)
    cache.learn("a", None, 12)
    cache.learn("a", revoked, 11)
    assert cache.look("a", 13) == Known(None)
    assert not cache.has("a")
    cache.learn("a", A, 12)
    assert cache.look("a", 13) == Known(A)


def test_the_cache_drops_the_least_recently_used_entry(cache: TokenCache) -> None:
    cache.learn("a", A, 0)
    cache.learn("b", token("b"), 0)
    assert cache.look("a", 1) == Known(A)
    cache.learn("c", token("c"), 1)
    assert [cache.has(id) for id in "abc"] == [True, False, True]
    for id in "xyz":
        cache.learn(id, None, 1)
    assert [cache.look(id, 2) for id in "xyz"] == [None, Known(None), Known(None)]
    assert [cache.has(id) for id in "abc"] == [True, False, True], "they have their own places"
    assert repr(cache) == "<TokenCache of 2 tokens, 2 unknown ids>"
