"""Find out who sends a request: from its header to a principal, with few lookups in the table.

Owns: the lookups of tokens. An id is looked up once at a time, for all callers that wait for it.
Ids that callers ask for at the same time share one lookup. Ids without a token in the cache
wait in a separate line. So a flood of invented ids delays no caller whose token is in the cache.
`core.access.cache` decides how long an answer is valid.

A revocation is in force within `fresh_ms`, or within `LOOKUP_MS_MAX` for a lookup that was under
way. An authenticator belongs to one event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from dodona_gateway.core.access.cache import CacheLimits, TokenCache
from dodona_gateway.core.access.principal import Principal, principal_of
from dodona_gateway.core.access.tokens import Token, TokenId, accept, parse_authorization
from dodona_wire.errors import DodonaError, Overloaded, Unavailable
from dodona_wire.types import Now

LOOKUP_MS_MAX: Final = 1_500
"""The longest time that callers wait for one lookup."""
NAMED_MS_MAX: Final = 1_200
"""The longest time that a lookup may ask the cells. Its error then names the cell that does not
answer."""
TOLD: Final = ("cell", "cells", "server", "silent_ms")
"""The attributes of a silent server that a caller sees. The caller is not known yet, so these are
no addresses."""
IDS_PER_LOOKUP_MAX: Final = 1_000
UNKNOWN_WAITING_MAX: Final = 2_000
"""The number of ids that have no known token and wait for a lookup, at most."""

Found = dict[TokenId, Token]
FindMany = Callable[[Sequence[TokenId]], Awaitable[Found]]

_log: Final = logging.getLogger(__name__)


class _Answer(NamedTuple):
    """The answer to a question: a token, no token, or the error of the lookup."""

    token: Token | None
    error: DodonaError | None
    asked_us: int
    """The time of the first question: the answer is not older."""
    answered_us: int


class _Question(NamedTuple):
    answer: asyncio.Future[_Answer]
    asked_us: int
    asked_s: float
    """By the event loop's clock, which measures how long the lookup took."""


Hear = Callable[[TokenId, _Answer], None]


class _Line:
    """Ids that wait, and the one lookup that is under way. Each answer is passed to `hear`."""

    def __init__(self, find_many: FindMany, hear: Hear, waiting_max: int) -> None:
        self._find_many = find_many
        self._hear = hear
        self._waiting_max = waiting_max
        self._waiting: dict[TokenId, _Question] = {}
        self._asked: dict[TokenId, _Question] = {}
        self._task: asyncio.Task[None] | None = None

    async def ask(self, id: TokenId, instant_us: int) -> Token | None:
        """Return the token of an id, None if there is none. Raises Overloaded, Unavailable."""
        question = self._asked.get(id) or self._waiting.get(id) or self._add(id, instant_us)
        answer = await asyncio.shield(question.answer)
        if answer.error is not None:
            text = (
                "The table //sys/tokens can't be read, so the token can't be checked. "
                "Repeat the call."
            )
            known = answer.error.attributes
            told = {name: known[name] for name in TOLD if name in known}
            raise Unavailable(text, **told) from answer.error
        return answer.token

    async def close(self) -> None:
        """End the lookup. The callers that wait get Unavailable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _add(self, id: TokenId, instant_us: int) -> _Question:
        if len(self._waiting) >= self._waiting_max:
            text = "Too many unknown tokens wait for a lookup. Wait, then repeat the call."
            raise Overloaded(text, waiting=len(self._waiting))
        loop = asyncio.get_running_loop()
        question = _Question(loop.create_future(), instant_us, loop.time())
        self._waiting[id] = question
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tokens")
        return question

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._asked = dict(islice(self._waiting.items(), IDS_PER_LOOKUP_MAX))
                for id in self._asked:
                    del self._waiting[id]
                await self._look_up()
        finally:
            self._task = None
            self._asked, self._waiting = {**self._asked, **self._waiting}, {}
            self._settle({}, Unavailable("The lookup of tokens was cancelled."))

    async def _look_up(self) -> None:
        try:
            async with asyncio.timeout(LOOKUP_MS_MAX / 1000):
                found = await self._find_many([*self._asked])
        except DodonaError as error:
            self._settle({}, error)
        except TimeoutError:
            text = f"The lookup of tokens took longer than {LOOKUP_MS_MAX} ms."
            self._settle({}, Unavailable(text))
        else:
            self._settle(found, None)

    def _settle(self, found: Found, error: DodonaError | None) -> None:
        now_s = asyncio.get_running_loop().time()
        for id, question in self._asked.items():
            answered_us = question.asked_us + round((now_s - question.asked_s) * 1e6)
            answer = _Answer(found.get(id), error, question.asked_us, answered_us)
            self._hear(id, answer)
            if not question.answer.done():
                question.answer.set_result(answer)
        self._asked = {}


class Authenticator:
    """Finds out who sends a request. `find_many` is that of a store (`TokenStore.find_many`)."""

    def __init__(self, find_many: FindMany, limits: CacheLimits | None = None) -> None:
        limits = limits or CacheLimits()
        self._cache = TokenCache(limits)
        self._known = _Line(find_many, self._hear_of_known, limits.tokens_max)
        self._unknown = _Line(find_many, self._learn, UNKNOWN_WAITING_MAX)
        self._is_failing = False

    def __repr__(self) -> str:
        return f"<Authenticator with {self._cache!r}>"

    async def authenticate(
        self, header: str | None, now: Now, *, is_watching: bool = False
    ) -> Principal:
        """Return the principal of the token in the header `Authorization`. `header` is None if
        there is no such header; `is_watching` is as in `CacheLimits`. Raises Unauthenticated;
        raises Overloaded and Unavailable if the token can't be looked up."""
        presented = parse_authorization(header)
        token = await self._find(presented.id, now.instant_us, is_watching=is_watching)
        return principal_of(accept(token, presented, now.unix_us))

    def learn(self, token: Token, now: Now) -> None:
        """Take over a token that this gateway itself has changed. The change is in force
        immediately."""
        self._cache.learn(token.id, token, now.instant_us)

    async def close(self) -> None:
        """End the lookups that are under way."""
        await self._known.close()
        await self._unknown.close()

    async def _find(self, id: TokenId, instant_us: int, *, is_watching: bool) -> Token | None:
        known = self._cache.look(id, instant_us, is_watching=is_watching)
        if known is not None:
            return known.token
        line = self._known if self._cache.has(id) else self._unknown
        try:
            return await line.ask(id, instant_us)
        except Unavailable:
            token = self._cache.fall_back(id, instant_us, is_watching=is_watching)
            if token is None:
                raise
            return token

    def _learn(self, id: TokenId, answer: _Answer) -> None:
        if answer.error is None:
            self._cache.learn(id, answer.token, answer.asked_us)

    def _hear_of_known(self, id: TokenId, answer: _Answer) -> None:
        self._learn(id, answer)
        self._cache.note_reading(answer.answered_us if answer.error else None)
        if bool(answer.error) != self._is_failing:
            self._is_failing = not self._is_failing
            word = "can't" if self._is_failing else "can"
            _log.warning("the table of tokens %s be read (%s)", word, answer.error or "again")
