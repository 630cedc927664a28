"""Print tokens on the command line: a table for people, JSON for programs.

Owns: the columns, and how a new token is printed. Its text alone is on standard output, so that a
script can read it, and its description is on standard error. Sends no request.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dodona_gateway.core.access.tokens import NewToken, Token
from dodona_local.cli.streams import write_output
from dodona_local.progress_screen import show_table

COLUMNS = ("id", "name", "state", "created", "ends", "grants")
JSON = "json"


def show_tokens(tokens: Sequence[Token], unix_us: int, form: str) -> None:
    """Print the tokens to standard output."""
    if form == JSON:
        _show_json([_fields(it, unix_us) for it in tokens])
        return
    rows = [
        (
            *(it.id, it.name, it.state_at(unix_us), moment(it.created_us)),
            *(moment(it.revoked_us or it.expires_us), " ".join(map(str, it.grants))),
        )
        for it in tokens
    ]
    show_table(COLUMNS, rows)


def show_new(made: NewToken, form: str) -> None:
    """Print a new token. Its text is shown only here."""
    token = made.token
    if form == JSON:
        _show_json({**_fields(token, token.created_us), "token": made.text})
        return
    grants = ", ".join(map(str, token.grants))
    ends = f"until {moment(token.expires_us)}" if token.expires_us else "until it is revoked"
    about = f"token {token.id} of {token.name} allows {grants} {ends}; it is not shown again:"
    print(about, file=sys.stderr, flush=True)
    print(made.text, flush=True)


def moment(unix_us: int | None) -> str:
    """Return the time to the second, in UTC."""
    if unix_us is None:
        return ""
    return f"{datetime.fromtimestamp(unix_us / 1e6, UTC):%Y-%m-%d %H:%M:%SZ}"


def _fields(token: Token, unix_us: int) -> dict[str, Any]:
    """Return the fields that may be shown: not the hash."""
    return {
        "id": token.id,
        "name": token.name,
        "state": token.state_at(unix_us),
        "grants": [str(it) for it in token.grants],
        "created_us": token.created_us,
        "expires_us": token.expires_us,
        "revoked_us": token.revoked_us,
    }


def _show_json(found: object) -> None:
    write_output(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
