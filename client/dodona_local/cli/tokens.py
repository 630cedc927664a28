"""Create, list and revoke tokens for the gateway: `dodona tokens`.

Owns: the arguments, and the text form of a duration. These commands use the cluster and not the
gateway, and so need no token: a user who reaches the master may create one. A token whose text
could not be printed is revoked. `dodona_local.tokens_screen` prints tokens.
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
    help="Create, list and revoke tokens for the gateway (docs/reference/access.md).",
)

Id = Annotated[str, typer.Argument(help="Id of the token, as `list` prints it.", metavar="ID")]


def _parse_duration(text: str) -> int:
    """Return the duration in seconds."""
    shape = re.fullmatch("([0-9]{1,12})([smhd])", text, re.ASCII)
    seconds = int(shape[1]) * SECONDS_BY_UNIT[shape[2]] if shape else 0
    if not 0 < seconds <= DURATION_S_MAX:
        raise typer.BadParameter("a duration is a number and a unit: 45s, 30m, 12h, 30d")
    return seconds


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the token's user.", show_default=False)],
    grant: Annotated[
        list[str],
        typer.Option(
            help="Allow a role (read, write or admin) on these paths. May be repeated.",
            metavar="ROLE:PATTERN",
            show_default=False,
        ),
    ],
    expires: Annotated[
        int | None,
        typer.Option(
            parser=_parse_duration,
            help="End the token after this time, such as 12h or 30d.",
            metavar="DURATION",
        ),
    ] = None,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Create a token and print its text, only this once. If it can't be printed, the token is
    revoked."""
    from dodona_local.tokens_screen import show_new

    made = _with_store(url, data_dir, lambda store: store.create(name, grant, _moment_us(expires)))
    try:
        show_new(made, form)
    except BaseException:  # the reader has left, or a write that waited was interrupted
        drop_output()  # the text must not be written at the end either, or wait again
        _take_back(made.token, url, data_dir)
        raise
    if output_failure() is not None:
        _take_back(made.token, url, data_dir)
        raise typer.Exit(FAILED)


def _take_back(token: "Token", url: str, data_dir: Path | None) -> None:
    """Revoke a token that could not be printed: otherwise it would be valid, and no user would have
    it. Only the write itself shows whether there is room, so this can't be checked before."""
    from dodona_wire.errors import DodonaError

    about = f"dodona: token {token.id} of {token.name} could not be shown"
    try:
        _with_store(url, data_dir, lambda store: store.revoke(token.id))
    except DodonaError as error:
        again = f"revoke it: dodona tokens revoke {token.id}"
        warn(f"{about} or revoked, so it may be valid: {again} ({error})")
    else:
        warn(f"{about}, so it is revoked: create another token")


@commands.command("list")
def list_tokens(url: Url = MASTER_URL, data_dir: DataDir = None, form: Form = Format.TABLE) -> None:
    """List all tokens, oldest first, with those that ended in the last thirty days."""
    found = _with_store(url, data_dir, lambda store: store.list())
    from dodona_local.tokens_screen import show_tokens

    show_tokens(found, _now_us(), form)


@commands.command()
def revoke(token: Id, url: Url = MASTER_URL, data_dir: DataDir = None) -> None:
    """Revoke a token for ever. It allows nothing any more, everywhere within two seconds."""
    revoked = _with_store(url, data_dir, lambda store: store.revoke(token))
    say(f"token {revoked.id} of {revoked.name} is revoked")


@commands.command()
def expire(
    token: Id,
    after: Annotated[
        int,
        typer.Argument(
            parser=_parse_duration, help="Time from now, such as 12h or 30d.", metavar="DURATION"
        ),
    ],
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Let a token end after a time from now, sooner or later than before."""
    expired = _with_store(url, data_dir, lambda store: store.expire(token, _moment_us(after)))
    from dodona_local.tokens_screen import moment

    say(f"token {expired.id} of {expired.name} ends at {moment(expired.expires_us)}")


def _with_store(
    url: str, data_dir: Path | None, use: "Callable[[TokenStore], Awaitable[Result]]"
) -> Result:
    """Use the store of tokens. Raises InvalidRequest, Unavailable, FolderInUse, and the errors of
    the use."""
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
    """Return the time after that many seconds from now, in Unix microseconds."""
    return None if seconds is None else _now_us() + seconds * 1_000_000
