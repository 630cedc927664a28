"""Keep tokens that were read, and decide how long the gateway may use them. Pure.

Owns: the two bounded memories, one for tokens and one for unknown ids. Each drops its least
recently used entry first, so invented ids push out no token.

Times are monotonic microseconds. The age of an entry counts from the time when the gateway asked
for the token. So the cache never takes an entry for younger than it is.
"""

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from dodona_gateway.core.access.tokens import Token, TokenId


class CacheLimits(msgspec.Struct, frozen=True):
    """The limits on how much is remembered, and for how long."""

    tokens_max: int = 10_000
    unknown_ids_max: int = 10_000
    fresh_ms: int = 1_000
    """For this time the cache answers without asking the table. After it, a revocation is in
    force."""
    grace_ms: int = 30_000
    """For this additional time tokens stay good while the table can't be read."""
    watching_grace_ms: int = 12 * 3600 * 1000
    """The grace time of a request that only watches the state of the cluster. Operators need these
    pages most while the table can't be read. It is as long as the console's cookie lives."""
    pause_ms: int = 1_000
    """For this time after a failure, no request waits for the table if the cache has its token."""
    watching_pause_ms: int = 10_000
    """The pause for requests that only watch: they come every other second."""


class Known(NamedTuple):
    """The result for an id: a token, or None if the id is unknown."""

    token: Token | None


class _Entry(NamedTuple):
    token: Token
    asked_us: int


class TokenCache:
    """The token cache of one gateway."""

    def __init__(self, limits: CacheLimits | None = None) -> None:
        self._limits = limits or CacheLimits()
        self._tokens: OrderedDict[TokenId, _Entry] = OrderedDict()
        self._unknown: OrderedDict[TokenId, int] = OrderedDict()
        """By id, the time when the gateway asked for it."""
        self._failed_us: int | None = None
        """The time when the table was last found unreadable; None after it was read."""

    def __repr__(self) -> str:
        return f"<TokenCache of {len(self._tokens)} tokens, {len(self._unknown)} unknown ids>"

    def has(self, id: TokenId) -> bool:
        """Return whether the id had a token when it was last read."""
        return id in self._tokens

    def look(self, id: TokenId, instant_us: int, *, is_watching: bool = False) -> Known | None:
        """Return the answer that needs no read of the table, or None."""
        entry = self._tokens.get(id)
        if entry is not None:
            self._tokens.move_to_end(id)
            is_good = self._is_fresh(entry.asked_us, instant_us) or (
                self._is_failing(instant_us, is_watching=is_watching)
                and self._is_in_grace(entry, instant_us, is_watching=is_watching)
            )
            return Known(entry.token) if is_good else None
        asked_us = self._unknown.get(id)
        if asked_us is None or not self._is_fresh(asked_us, instant_us):
            return None
        self._unknown.move_to_end(id)
        return Known(None)

    def fall_back(self, id: TokenId, instant_us: int, *, is_watching: bool = False) -> Token | None:
        """Return the token to use if the gateway asked the table and could not read it, or None. An
        unknown id has None, because the id may have become known since then."""
        entry = self._tokens.get(id)
        if entry is None or not self._is_in_grace(entry, instant_us, is_watching=is_watching):
            return None
        return entry.token

    def learn(self, id: TokenId, token: Token | None, asked_us: int) -> None:
        """Note the table's answer to a question that was asked at `asked_us`. An answer to an older
        question than the last one changes nothing."""
        known = self._tokens.get(id)
        if asked_us < (known.asked_us if known else self._unknown.get(id, asked_us)):
            return
        self._tokens.pop(id, None)
        self._unknown.pop(id, None)
        if token is None:
            self._unknown[id] = asked_us
        else:
            self._tokens[id] = _Entry(token, asked_us)
        if len(self._unknown) > self._limits.unknown_ids_max:
            self._unknown.popitem(last=False)
        if len(self._tokens) > self._limits.tokens_max:
            self._tokens.popitem(last=False)

    def note_reading(self, failed_us: int | None) -> None:
        """Note when tokens could not be read; None if they could."""
        self._failed_us = failed_us

    def _is_fresh(self, asked_us: int, instant_us: int) -> bool:
        return instant_us - asked_us < self._limits.fresh_ms * 1000

    def _is_failing(self, instant_us: int, *, is_watching: bool) -> bool:
        limits, failed_us = self._limits, self._failed_us
        pause_ms = limits.watching_pause_ms if is_watching else limits.pause_ms
        return failed_us is not None and instant_us - failed_us < pause_ms * 1000

    def _is_in_grace(self, entry: _Entry, instant_us: int, *, is_watching: bool) -> bool:
        limits = self._limits
        grace_ms = limits.watching_grace_ms if is_watching else limits.grace_ms
        return instant_us - entry.asked_us < (limits.fresh_ms + grace_ms) * 1000
