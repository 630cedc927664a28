"""What was read of tokens, and for how long it may be relied on. Pure.

Owns: the two bounded memories, least recently used out first: of tokens, and of ids that nobody
has, so that any number of invented ids pushes no token out. Times are monotonic microseconds, and
what was read counts from when it was asked for: it is never taken for younger than it is.
"""

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from dodona_gateway.core.access.tokens import Token, TokenId


class CacheLimits(msgspec.Struct, frozen=True):
    """How much is remembered, and for how long."""

    tokens_max: int = 10_000
    unknown_ids_max: int = 10_000
    fresh_ms: int = 1_000
    """For so long an answer is given without asking: a revocation is in force after that."""
    grace_ms: int = 30_000
    """For so much longer tokens are good while the table can't be read."""
    watching_grace_ms: int = 12 * 3600 * 1000
    """The same for whoever only watches the state of the cluster, which is wanted then most: as
    long as the console's cookie lives."""
    pause_ms: int = 1_000
    """For so long after a failure nobody waits for the table if there is something to go by."""
    watching_pause_ms: int = 10_000
    """The same for whoever watches, and asks every other second."""


class Known(NamedTuple):
    """What was found under an id: a token, or none."""

    token: Token | None


class _Entry(NamedTuple):
    token: Token
    asked_us: int


class TokenCache:
    """One gateway's."""

    def __init__(self, limits: CacheLimits | None = None) -> None:
        self._limits = limits or CacheLimits()
        self._tokens: OrderedDict[TokenId, _Entry] = OrderedDict()
        self._unknown: OrderedDict[TokenId, int] = OrderedDict()
        """By id, when that was asked for."""
        self._failed_us: int | None = None
        """When the table was last found not to be readable; None after it was read."""

    def __repr__(self) -> str:
        return f"<TokenCache of {len(self._tokens)} tokens, {len(self._unknown)} unknown ids>"

    def has(self, id: TokenId) -> bool:
        """Whether the id was somebody's when last read."""
        return id in self._tokens

    def look(self, id: TokenId, instant_us: int, *, is_watching: bool = False) -> Known | None:
        """What may be answered without asking the table, or None."""
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
        """The token to go by if the table was asked and could not be read; None if there is none:
        an id that was unknown may have become known since."""
        entry = self._tokens.get(id)
        if entry is None or not self._is_in_grace(entry, instant_us, is_watching=is_watching):
            return None
        return entry.token

    def learn(self, id: TokenId, token: Token | None, asked_us: int) -> None:
        """What the table said to a question of that time. The answer to an older question than the
        last changes nothing."""
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
        """Whether tokens could be read: None, or when they could not."""
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
