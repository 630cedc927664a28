"""Provide the first token of a cluster, in a file that the operator of a gateway reads.

Owns: the order of the steps. The token's text is in a file that only its owner can read before the
token allows anything, because no later call shows the text. The file gets its final name only once
the token exists.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dodona.aio import AsyncClient
from dodona_gateway.core.access.tokens import parse_token
from dodona_gateway.shell.tokens import (
    TokenStore,
    draw_first_token,
    ensure_first_token,
    read_first_token,
)
from dodona_wire.errors import InvalidRequest


class FirstToken:
    """The first token, to be provided once, as soon as cells can keep it. Several gateways may have
    the same file, even a file that has a token already."""

    def __init__(self, client: AsyncClient, path: Path) -> None:
        self._client = client
        self._path = Path(os.path.realpath(path))  # a link stays, and leads to the new file
        self._text = draw_first_token()
        """The same text at each attempt: an earlier attempt without an answer may have made this
        token."""

    async def provide(self) -> bool:
        """Make the token if there is none. Return whether a new token was made and is in the file
        now. Raises DodonaError: try again."""
        given = read_first_token(self._path)
        if given is not None:
            return await ensure_first_token(self._client, given) is not None
        with _drafted(self._path, self._text) as draft:
            is_ours = await self._make()
            if is_ours:
                draft.rename(self._path)
        return is_ours

    async def _make(self) -> bool:
        if await ensure_first_token(self._client, self._text) is not None:
            return True
        its_id = parse_token(self._text).id
        return await TokenStore(self._client).find(its_id) is not None


@contextmanager
def _drafted(path: Path, text: str) -> Iterator[Path]:
    """Yield the path of a draft beside the file that has the text already. The draft is removed at
    the end, unless it was renamed."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(descriptor, "w") as file:
                file.write(f"{text}\n")
                file.flush()
                os.fsync(file.fileno())
            yield draft
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(f"The first token can't be written: {error}") from error
