"""Create, list, revoke and find tokens in their table `//sys/tokens`.

Owns: the table's schema, that the table exists and is mounted, and its transactions. Any number of
processes use the table at the same time. To create a token, a process locks one fixed row. So the
number of tokens is exact, and the first token is created once. No method keeps a secret.
"""

import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from dodona.aio import AsyncClient, AsyncTransaction
from dodona_gateway.core.access.grants import TOKENS, Grant, parse_grants
from dodona_gateway.core.access.tokens import (
    NewToken,
    RandomBytes,
    Token,
    TokenId,
    check_expiry,
    check_id,
    check_new,
    given_token,
    new_token,
    parse_token,
)
from dodona_wire.errors import (
    DataCorrupted,
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    NodeExists,
    NodeNotFound,
    RowNotFound,
    TableNotMounted,
    Unauthenticated,
)

SCHEMA: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "utf8", "sort_order": "ascending"},
    {"name": "name", "type": "utf8"},
    {"name": "secret_sha256", "type": "string"},
    {"name": "grants", "type": "any"},
    {"name": "created_us", "type": "int64"},
    {"name": "expires_us", "type": "int64"},
    {"name": "revoked_us", "type": "int64"},
]
ATTRIBUTES: Final = {"max_data_versions": 1}
TOKENS_MAX: Final = 10_000
ENDED_KEPT_US: Final = 30 * 24 * 3600 * 1_000_000
"""How long a token stays listed after it was revoked or has expired."""
FIRST: Final = "first"
FIRST_GRANTS: Final = (Grant.of("admin", "/"),)
_LOCKED: Final = {"id": "whoever makes a token"}
"""A key that no token has. The row is locked and never written."""

_log: Final = logging.getLogger(__name__)

Result = TypeVar("Result")


def _unix_us() -> int:
    return time.time_ns() // 1000


class TokenStore:
    """The tokens of the cluster, or of the embedded database, that a client is connected to."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        unix_us: Callable[[], int] = _unix_us,
        random_bytes: RandomBytes = secrets.token_bytes,
    ) -> None:
        self._client = client
        self._unix_us = unix_us
        self._random_bytes = random_bytes
        self._is_there = False

    def __repr__(self) -> str:
        return f"<TokenStore in {self._client!r}>"

    # ---- reading

    async def find(self, id: TokenId) -> Token | None:
        """Return the token of this id, None if there is none. Raises DodonaError if the table can't
        be read."""
        return (await self.find_many([id])).get(id)

    async def find_many(
        self, ids: Iterable[TokenId], timeout_ms: int | None = None
    ) -> dict[TokenId, Token]:
        """Return the tokens that exist, by id. A row that is not a valid token counts as no token.
        Raises DodonaError if the table can't be read within `timeout_ms`."""
        keys = [{"id": id} for id in ids]
        rows = await self._read(
            lambda: self._client.lookup_rows(TOKENS, keys, timeout_ms=timeout_ms)
        )
        found: dict[TokenId, Token] = {}
        for row in rows:
            try:
                found[row["id"]] = _token_of(row)
            except DataCorrupted as error:
                _log.error("%s", error)
        return found

    async def list(self) -> "list[Token]":
        """Return all tokens, oldest first, with those that have ended in the last 30 days. Raises
        DodonaError."""
        rows = await self._read(lambda: self._client.select(TOKENS))
        return sorted(map(_token_of, rows), key=lambda it: (it.created_us, it.id))

    async def _read(self, read: Callable[[], Awaitable[Iterable[Any]]]) -> Iterable[Any]:
        """Run a read. If the table is not mounted, mount it and read again: its creator may have
        crashed before the mount."""
        try:
            return await read()
        except NodeNotFound:  # no token was ever created
            return []
        except TableNotMounted:
            self._is_there = False
            await self._ensure()
            return await read()

    # ---- changing

    async def create(
        self, name: str, grants: Iterable[Grant | str], expires_us: int | None = None
    ) -> NewToken:
        """Create a token that allows these grants (`write://home/bank/**`), until `expires_us` in
        Unix microseconds if given. The token's text is not kept. Raises InvalidRequest,
        LimitExceeded, and DodonaError if the table can't be written."""
        texts = [str(it) if isinstance(it, Grant) else it for it in grants]
        parsed = parse_grants(texts)
        check_new(name, parsed, self._unix_us(), expires_us)
        made = await self._make(lambda: self._draw(name, parsed, expires_us), only_first=False)
        assert made is not None
        return made

    async def create_first(self, text: str | None = None) -> NewToken | None:
        """Create a token for everything, called `first`, if there is no token at all, not even an
        ended one. The token has this text if one is given. If several processes try at the same
        time, one creates it. Raises DodonaError."""
        if await self._read(lambda: self._client.select(TOKENS, columns=["id"])):
            return None
        if text is None:
            return await self._make(lambda: self._draw(FIRST, FIRST_GRANTS, None), only_first=True)
        given = given_token(FIRST, FIRST_GRANTS, text, created_us=self._unix_us())
        return await self._make(lambda: given, only_first=True)

    async def revoke(self, id: TokenId) -> Token:
        """Revoke a token: it allows nothing any more, everywhere within 2 s. A token that was
        revoked before stays as it is. Raises RowNotFound, InvalidRequest, DodonaError."""

        def revoked(token: Token) -> Token:
            at = self._unix_us()
            return token if token.revoked_us else msgspec.structs.replace(token, revoked_us=at)

        return await self._change(id, revoked)

    async def expire(self, id: TokenId, expires_us: int | None) -> Token:
        """Set the end of a token to a time in Unix microseconds, or with None to never. A revoked
        token stays revoked. Raises RowNotFound, InvalidRequest, DodonaError."""
        check_expiry(expires_us, self._unix_us())
        return await self._change(
            id, lambda token: msgspec.structs.replace(token, expires_us=expires_us)
        )

    def _draw(self, name: str, grants: tuple[Grant, ...], expires_us: int | None) -> NewToken:
        return new_token(
            name,
            grants,
            created_us=self._unix_us(),
            expires_us=expires_us,
            random_bytes=self._random_bytes,
        )

    async def _make(self, draw: Callable[[], NewToken], *, only_first: bool) -> NewToken | None:
        async def make(transaction: AsyncTransaction) -> NewToken | None:
            await transaction.lock_rows(TOKENS, [_LOCKED], lock_type="exclusive")
            rows = await transaction.select(TOKENS, columns=["id", "expires_us", "revoked_us"])
            if rows and only_first:
                return None
            ids = {row["id"] for row in rows}
            long_ago = [{"id": it["id"]} for it in rows if _ended_long_ago(it, self._unix_us())]
            if len(ids) - len(long_ago) >= TOKENS_MAX:
                text = (
                    f"There are {TOKENS_MAX} tokens, which is the limit. "
                    "Revoke tokens. They are removed after 30 days."
                )
                raise LimitExceeded(text, tokens=len(ids))
            made = draw()
            # The first token has a fixed id, but then there is no other token.
            while made.token.id in ids:
                made = draw()
            await transaction.delete_rows(TOKENS, long_ago)
            await transaction.insert_rows(TOKENS, [_row_of(made.token)])
            return made

        return await self._transact(make)

    async def _change(self, id: TokenId, change: Callable[[Token], Token]) -> Token:
        check_id(id)

        async def rewrite(transaction: AsyncTransaction) -> Token:
            rows = await transaction.lookup_rows(TOKENS, [{"id": id}])
            if not rows:
                raise RowNotFound("No token has this id. List the tokens.", key={"id": id})
            before = _token_of(rows[0])
            after = change(before)
            if after != before:
                await transaction.insert_rows(TOKENS, [_row_of(after)])
            return after

        return await self._transact(rewrite)

    async def _transact(self, function: Callable[[AsyncTransaction], Awaitable[Result]]) -> Result:
        await self._ensure()
        try:
            return await self._client.run_in_transaction(function)
        except (NodeNotFound, TableNotMounted):
            self._is_there = False  # the table was removed or unmounted since
            await self._ensure()
            return await self._client.run_in_transaction(function)

    async def _ensure(self) -> None:
        """Create and mount the table if needed. Any number of processes may try at the same time.
        Raises DodonaError."""
        if self._is_there:
            return
        try:
            table = await self._client.get_table(TOKENS)
        except NodeNotFound:
            with suppress(NodeExists):  # another process created it meanwhile
                await self._client.create_table(TOKENS, SCHEMA, attributes=ATTRIBUTES)
            table = await self._client.get_table(TOKENS)
        if not table.is_mounted:
            await self._client.mount_table(TOKENS)
        self._is_there = True


def read_first_token(path: Path) -> str | None:
    """Return the text of the token in this file, or None if there is no file. Raises InvalidRequest
    if the file can't be read or has another text, or if there is no file and none can be made. The
    error does not show the file's text."""
    try:
        text = path.read_text().strip()
        parse_token(text)
    except FileNotFoundError:
        _check_place(path)
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The first token can't be read: {error}") from error
    except Unauthenticated as error:
        raise InvalidRequest(f"{path} does not contain a valid token: {error.message}") from None
    return text


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise InvalidRequest(
            f"The first token can't be written: the folder {path.parent} does not exist. "
            "Create the folder."
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InvalidRequest(
            f"The first token can't be written: {path.parent} is not writable. "
            "Change its permissions, or choose another folder."
        )


def draw_first_token() -> str:
    """Return the text of a token that is not created yet."""
    return new_token(
        FIRST, FIRST_GRANTS, created_us=_unix_us(), random_bytes=secrets.token_bytes
    ).text


async def ensure_first_token(client: AsyncClient, text: str | None = None) -> str | None:
    """Create a token for everything, called `first`, if there is no token at all. Its text is a new
    one, or the given one. Return the text, or None if there was a token. If several callers try at
    the same time, one gets the text. Raises DodonaError."""
    made = await TokenStore(client).create_first(text)
    return None if made is None else made.text


def _ended_long_ago(row: Mapping[str, Any], unix_us: int) -> bool:
    ends = [at for at in (row["expires_us"], row["revoked_us"]) if at is not None]
    return bool(ends) and unix_us - min(ends) > ENDED_KEPT_US


def _row_of(token: Token) -> dict[str, Any]:
    fields = {name: getattr(token, name) for name in Token.__struct_fields__}
    return {**fields, "grants": [str(it) for it in token.grants]}


def _token_of(row: Mapping[str, Any]) -> Token:
    """Return the token of a row. Raises DataCorrupted if the row is not a valid token."""
    try:
        fields = {**row, "grants": parse_grants(row["grants"])}
        return msgspec.convert(fields, Token)
    except (DodonaError, msgspec.ValidationError) as error:
        text = f"A row of {TOKENS} is not a valid token. Delete the row."
        raise DataCorrupted(text, key={"id": row["id"]}) from error
