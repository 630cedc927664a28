"""`dodona tokens`: who may use the gateway, and for what.

Owns: the arguments, and how a duration is written. These commands speak to the cluster and not to
the gateway, so that they need no token: whoever reaches the master may make one. A token whose text
could not be shown is revoked. How tokens are shown is `dodona_local.tokens_screen`'s.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, DataDir, Form, Format, Url
from dodona_local.cli.running import FAILED, call_timeout_ms, database_in, say, warn
from dodona_local.cli.streams import drop_output, output_failure

if TYPE_CHECKING:
    from dodona_gateway.core.access.tokens import Token
    from dodona_gateway.shell.tokens import TokenStore

SECONDS_BY_UNIT: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
DURATION_S_MAX: Final = 100 * 365 * SECONDS_BY_UNIT["d"]

Result = TypeVar("Result")

commands = typer.Typer(
    no_args_is_help=True,
    help="Tokens: who may use the gateway, and for what (docs/reference/access.md).",
)

Id = Annotated[str, typer.Argument(help="As `list` shows it.", metavar="ID")]


def _parse_duration(text: str) -> int:
    """Seconds."""
    shape = re.fullmatch("([0-9]{1,12})([smhd])", text, re.ASCII)
    seconds = int(shape[1]) * SECONDS_BY_UNIT[shape[2]] if shape else 0
    if not 0 < seconds <= DURATION_S_MAX:
        raise typer.BadParameter("a duration is a number and a unit: 45s, 30m, 12h, 30d")
    return seconds


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose it is.", show_default=False)],
    grant: Annotated[
        list[str],
        typer.Option(
            help="What it allows: read, write or admin, and on which nodes. As often as needed.",
            metavar="ROLE:PATTERN",
            show_default=False,
        ),
    ],
    expires: Annotated[
        int | None,
        typer.Option(
            parser=_parse_duration, help="It ends after so long: 12h, 30d.", metavar="DURATION"
        ),
    ] = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Make a token and print it, this once: it is not kept. If standard output does not take it,
    it is revoked."""
    from dodona_local.tokens_screen import show_new

    made = _with_store(url, data_dir, lambda store: store.create(name, grant, _moment_us(expires)))
    try:
        show_new(made, form)
    except BaseException:  # its reader has gone, or somebody interrupted a write that waited
        drop_output()  # so that it is not written at the end either, nor waited for again
        _take_back(made.token, url, data_dir)
        raise
    if output_failure() is not None:
        _take_back(made.token, url, data_dir)
        raise typer.Exit(FAILED)


def _take_back(token: "Token", url: str, data_dir: Path | None) -> None:
    """Revoke a token that could not be shown: otherwise it would allow what it allows, and nobody
    would have it. Only a write says whether there is room for it, so nothing is known before."""
    from dodona_wire.errors import DodonaError

    about = f"dodona: token {token.id} of {token.name} could not be shown"
    try:
        _with_store(url, data_dir, lambda store: store.revoke(token.id))
    except DodonaError as error:
        again = f"revoke it: dodona tokens revoke {token.id}"
        warn(f"{about}, and not be revoked, so it may be valid: {again} ({error})")
    else:
        warn(f"{about}, so it is revoked: make another")


@commands.command("list")
def list_tokens(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """All tokens, oldest first, also those that ended in the last thirty days."""
    found = _with_store(url, data_dir, lambda store: store.list())
    from dodona_local.tokens_screen import show_tokens

    show_tokens(found, _now_us(), form)


@commands.command()
def revoke(token: Id, url: Url = MASTER_URL, data_dir: DataDir = None) -> None:
    """Have a token allow nothing any more, everywhere within two seconds. It can't be undone."""
    revoked = _with_store(url, data_dir, lambda store: store.revoke(token))
    say(f"token {revoked.id} of {revoked.name} is revoked")


@commands.command()
def expire(
    token: Id,
    after: Annotated[
        int,
        typer.Argument(parser=_parse_duration, help="Such as 12h or 30d.", metavar="DURATION"),
    ],
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Have a token end after a time from now on, sooner or later than it would have."""
    expired = _with_store(url, data_dir, lambda store: store.expire(token, _moment_us(after)))
    from dodona_local.tokens_screen import moment

    say(f"token {expired.id} of {expired.name} ends at {moment(expired.expires_us)}")


def _with_store(
    url: str, data_dir: Path | None, use: "Callable[[TokenStore], Awaitable[Result]]"
) -> Result:
    """Raises InvalidRequest, Unavailable, FolderInUse, and what its use raises."""
    require_extras("server")
    import dodona.aio
    from dodona_gateway.shell.tokens import TokenStore

    folder = None if data_dir is None else database_in(data_dir)
    bound_ms = call_timeout_ms()

    async def run() -> Result:
        if folder is None:
            opening = dodona.aio.connect(url, call_timeout_ms=bound_ms)
        else:
            opening = dodona.aio.open(folder, call_timeout_ms=bound_ms)
        async with await opening as client:
            return await use(TokenStore(client))

    return asyncio.run(run())


def _now_us() -> int:
    return time.time_ns() // 1000


def _moment_us(seconds: int | None) -> int | None:
    """So many seconds from now, in Unix microseconds."""
    return None if seconds is None else _now_us() + seconds * 1_000_000
