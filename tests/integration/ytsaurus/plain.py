"""YTsaurus's HTTP API without its client: one request, as bytes.

Owns: where parameters go for each method. For what the real client would never send.
"""

import json
from typing import Any, Final

import requests

from dodona_ytsaurus.commands.api import COMMANDS

TIMEOUT_S: Final = 60


def ask(
    url: str,
    command: str,
    parameters: Any = None,
    content: Any = b"",
    *,
    token: str | None = None,
    headers: dict[str, str] | None = None,
    method: str | None = None,
) -> requests.Response:
    """The answer to one command, whose parameters are given as JSON, or, as bytes, in YSON."""
    known = COMMANDS.get(command)
    method = method or (known.method if known is not None else "GET")
    sent = {} if token is None else {"Authorization": f"OAuth {token}"}
    if isinstance(parameters, bytes):
        sent["X-YT-Header-Format"] = "<format=text>yson"
        encoded, media = parameters, "application/x-yt-yson-text"
    else:
        encoded, media = json.dumps(parameters or {}).encode(), "application/json"
    if method == "POST":
        content, sent["Content-Type"] = encoded, media
    else:
        sent["X-YT-Parameters"] = encoded.decode("latin-1")
    address = f"{url}/api/v4/{command}"
    return requests.request(
        method, address, data=content, headers={**sent, **(headers or {})}, timeout=TIMEOUT_S
    )


def error_of(answer: requests.Response) -> dict[str, Any]:
    """What an error says, which is the same in body and headers, one line of ASCII each."""
    told: dict[str, Any] = answer.json()
    assert set(told) == {"code", "message", "attributes", "inner_errors"}
    assert answer.headers["X-YT-Response-Code"] == str(told["code"]) != "0"
    header = answer.headers["X-YT-Error"]
    assert header.isascii()
    assert len(header) <= 8_000
    in_header = json.loads(header)
    assert in_header["code"] == told["code"]
    assert told["message"].startswith(in_header["message"][:100])
    return told
