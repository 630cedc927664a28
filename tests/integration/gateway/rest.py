"""REST as a caller sees it: operations by name, over HTTP, to a real gateway.

Owns: `Rest`, which sends an operation's fields where they belong, and what a proper error is.
"""

import json
import re
from types import TracebackType
from typing import Any, Final, Self

import httpx
import msgspec

from dodona.errors import ERRORS_BY_KIND, error_from_wire
from dodona_gateway.shell.gateway import ROUTES
from dodona_gateway.shell.routes import Route
from dodona_wire.messages.rest import PROBLEM_TYPE, Problem

BY_NAME: Final[dict[str, Route]] = {route.name: route for route in ROUTES}
INSIDES: Final = re.compile(
    r"Traceback|\.py\b|site-packages|line \d+, in|Error\(|Exception|<[\w.]+ object|0x[0-9a-f]{6}"
)
"""What no answer may say."""
TIMEOUT_S: Final = 120.0


class Rest:
    """Calls of one gateway, with a token if there is one."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S)
        self.url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.close()

    def send(
        self, operation: str, transaction: str = "", *, content: Any = None, **fields: Any
    ) -> httpx.Response:
        """Whatever comes of it. `content` is the body of what takes a stream, with its type."""
        route = BY_NAME[operation]
        path = route.path.replace("{transaction}", transaction)
        if content is not None:
            form, body = content
            headers = {"content-type": form}
            return self.http.post(path, params=fields, content=body, headers=headers)
        if route.is_query:
            params = {name: _text(value) for name, value in fields.items()}
            return self.http.request(route.method, path, params=params)
        return self.http.request(route.method, path, json=fields)

    def __call__(self, operation: str, transaction: str = "", **fields: Any) -> Any:
        """The answer, which has to be one."""
        answer = self.send(operation, transaction, **fields)
        assert answer.status_code == BY_NAME[operation].status, answer.text
        return answer.json()

    def attempt(self, operation: str, transaction: str = "", **fields: Any) -> Any:
        """As a call. An error is raised as what it is, as by a client: a lease may have ended."""
        answer = self.send(operation, transaction, **fields)
        if answer.status_code >= 400:
            problem = problem_of(answer)
            raise error_from_wire(problem.kind, problem.detail, problem.attributes)
        assert answer.status_code == BY_NAME[operation].status, answer.text
        return answer.json()

    def refused(self, operation: str, transaction: str = "", **fields: Any) -> Problem:
        """The error, which has to be one."""
        return problem_of(self.send(operation, transaction, **fields))


def problem_of(answer: httpx.Response) -> Problem:
    """What a proper error says. Nothing of it is about our insides."""
    assert answer.status_code >= 400, answer.text
    assert answer.headers["content-type"] == PROBLEM_TYPE, answer.text
    assert INSIDES.search(answer.text) is None, answer.text
    problem = msgspec.json.decode(answer.content, type=Problem)
    assert problem.status == answer.status_code
    assert problem.kind in ERRORS_BY_KIND
    assert problem.detail
    if answer.status_code in (429, 503):
        assert int(answer.headers["retry-after"]) > 0
    return problem


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
