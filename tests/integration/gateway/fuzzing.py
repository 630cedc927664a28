"""Requests by somebody who means harm, or whose program is wrong: made up from a seed.

Owns: what is sent. Most of it begins as an example of the OpenAPI document and is changed: its
values, its fields, its bytes, its form, its headers, its address, its HTTP. A request that is right
says what has to be answered.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

import msgspec
import pyarrow

from dodona_gateway.core.content import STREAM_FORMS, TYPES, Form
from dodona_gateway.core.examples import EXAMPLES
from dodona_gateway.shell.gateway import ROUTES
from dodona_gateway.shell.routes import Route
from dodona_wire.rows.logical_types import logical_type
from dodona_wire.rows.logical_values import load_of, text_of

KEPT: Final = "//kept/t"
"""Of the requests that are right. No other request names it."""
KEPT_LOGICAL: Final = "//kept/logical"
"""The same, with logical types."""
TARGETS: Final = ("//fuzz/full", "//fuzz/none", "//fuzz/wide", "//fuzz/logical")
COLUMNS: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "owner", "type": "string"},
    {"name": "balance", "type": "int64"},
]
WIDE: Final = [
    {"name": "id", "type": "double", "sort_order": "ascending"},
    {"name": "owner", "type": "utf8", "sort_order": "ascending"},
    {"name": "balance", "type": "any"},
    {"name": "sum", "type": "uint64", "aggregate": "sum", "lock": "a"},
    {"name": "flag", "type": "boolean", "required": False},
]
LOGICAL: Final = [
    {"name": "id", "type": "int32", "sort_order": "ascending"},
    {"name": "owner", "type": "string"},
    {"name": "balance", "type": "decimal(9,2)"},
    {"name": "text", "type": "json"},
    {"name": "day", "type": "date"},
    {"name": "at", "type": "timestamp64"},
    {"name": "took", "type": "interval64"},
    {"name": "uid", "type": "uuid"},
    {"name": "ratio", "type": "float"},
]
"""Columns that the examples name, and one of each other form."""
LOGICAL_TEXTS: Final = (
    "2024-02-29", "2024-02-30", "1969-12-31", "2105-12-31", "0001-01-01", "0000-01-01",
    "10000-01-01", "2024-02-29T12:30:00", "2024-02-29T12:30:00Z", "2024-02-29T12:30:60Z",
    "2024-02-29 12:30:00.000001+23:59", "9999-12-31T23:59:59.999999-00:01", "P1D", "P", "P1Y",
    "-PT0.000001S", "P106751617D", "P99999999999D", "12.50", "12.505", "-9999999.99", "1e7",
    "1e-400", "1e9999", "Infinity", "a3bb189e-8bf9-3888-9912-ace4e6543002", "a3bb189e8bf93888",
    "{\"a\": 1}", "[1, nul]", "date", "decimal(10,2)", "decimal(77,1)", "int128",
)  # fmt: skip
"""Values, near misses, and names of types."""
ODD_TEXTS: Final = (
    "", "x", "//", "/", "//fuzz", "//fuzz/full", "//fuzz/none", "//fuzz/wide", "//a/b", "//*",
    "//fuzz/full/@", "//fuzz/full/@max_data_versions", "//../x", "/@", "@", "$x", "\x00",
    "é€😀", "\u202e", "null", "NaN", "-1", "full", "none", "sync", "exclusive", "shared_write",
    "select 1", "select * from [//fuzz/full]", "select * from [", "0-0-2-0", "upsert",
    "1ac0e72c-a1ec4e72-b4c10002-1", "id",
    "balance", "owner", "[1]", "[]", "{}", "x" * 300, "//" + "y" * 1500, "a/" * 70, "write://x/**",
)  # fmt: skip
ODD_NUMBERS: Final = (
    0, 1, -1, 2, 3, 7, 100, 1000, 65_536, 1 << 31, 1 << 32, (1 << 53) + 1, (1 << 62) - 1, 1 << 62,
    (1 << 63) - 1, 1 << 63, -(1 << 63), (1 << 64) - 1, 1.5, -0.0, 1e300, 0x3FFF_FFFF_FFFF_FF01,
    0x3FFF_FFFF_FFFF_FF04, 0x3FFF_FFFF_FFFF_FF00, 1_795_398_899 << 30,
)  # fmt: skip
ODD_OBJECTS: Final[tuple[Any, ...]] = (
    {"$base64": "/w=="}, {"$base64": "!"}, {"$double": "NaN"}, {"$double": 1}, {"$dict": 1},
    {"$dict": {"$base64": 1}}, {"id": 1}, {"id": None}, {"id": 1, "x": 1}, {}, [], [[]],
    {"name": "id", "type": "int64"}, [None], ["id"],
    ["id", "id"], [1], [1, 2, 3], [{}], {"": ""}, [{"id": 1}] * 50,
)  # fmt: skip
HEAVY: Final = {
    **dict.fromkeys(("query_rows", "query_rows_in_transaction", "create_token", "bulk_write"), 0.1),
    **dict.fromkeys(("create_table", "mount_table", "copy_node"), 0.4),
}
"""Operations that are asked for less often than others, since each takes long."""
NEVER_ALL: Final = frozenset(("remove_node", "move_node", "revoke_token"))
"""What these do to everything is known, and would be the end of all else."""
PATCHES: Final = (
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "BREW",
    "get",
)
DEPTH_MAX: Final = 6
WAIT_MS: Final = 100
"""For tables that somebody else may be at."""
TRANSFERS: Final = ("chunked", "gzip, chunked", "identity", "chunked, chunked", "x")


class Sent(NamedTuple):
    """One request. `answer` is what its body has to be, as a check of the decoded one; whoever does
    not wait closes the connection instead of reading."""

    content: bytes
    answer: Callable[[Any], bool] | None = None
    is_waited_for: bool = True

    @property
    def is_head(self) -> bool:
        """Whether its answer has no body."""
        return self.content.startswith(b"HEAD ")


class Fuzzer:
    """Makes them up. One of several, which must not be alike: `number` is its own."""

    def __init__(self, seed: int, number: int, host: str) -> None:
        self._random = Random(f"{seed}-{number}")
        self._number = number
        self._host = host
        self._count = 0
        self._written: dict[int, str] = {}
        self._logical: dict[int, dict[str, Any]] = {}
        self._transactions: list[str] = []
        self._weights = [HEAVY.get(route.name, 1.0) for route in ROUTES]
        self._bulk = [self._stream(form) for form in STREAM_FORMS]

    def learn(self, transaction: str) -> None:
        """The id of one that was begun."""
        self._transactions = [*self._transactions[-20:], transaction]

    def next(self) -> Sent:
        """Another request."""
        self._count += 1
        draw = self._random.random()
        if draw < 0.2:
            return self._right()
        if draw < 0.78:
            return self._changed()
        if draw < 0.8:
            return self._in_bulk()
        if draw < 0.95:
            return self._odd_address()
        return self._odd_http()

    # ---- what is right

    def _right(self) -> Sent:
        if self._is_seldom(3):
            return self._right_logical()
        key = self._random.randrange(50) * 1000 + self._number
        if key in self._written and self._random.random() < 0.6:
            asked: dict[str, Any] = {"table": KEPT, "keys": [{"id": key}], "columns": ["owner"]}
            text = self._written[key]
            return self._of("lookup_rows", asked, lambda it: it == {"rows": [{"owner": text}]})
        if self._random.random() < 0.2:
            count = self._random.randrange(1, 100)
            return self._of(
                "generate_timestamps", {"count": count}, lambda it: it["count"] == count
            )
        self._written[key] = text = f"{self._count} ä"
        rows = [{"id": key, "owner": text, "balance": self._count}]
        insert = {"table": KEPT, "rows": rows}
        return self._of("insert_rows", insert, lambda it: it["timestamp"] > 0)

    def _right_logical(self) -> Sent:
        """A row of logical types, which comes back in the same texts."""
        key = (self._random.randrange(50) - 25) * 1000 + self._number
        if key in self._logical and self._is_seldom(2):
            asked = {"table": KEPT_LOGICAL, "keys": [{"id": key}]}
            row = {"id": key, **self._logical[key]}
            return self._of("lookup_rows", asked, lambda it: it == {"rows": [row]})
        self._logical[key] = values = self._logical_values()
        insert = {"table": KEPT_LOGICAL, "rows": [{"id": key, **values}]}
        return self._of("insert_rows", insert, lambda it: it["timestamp"] > 0)

    def _logical_values(self) -> dict[str, Any]:
        kinds = {it["name"]: logical_type(it["type"]) for it in LOGICAL}
        values: dict[str, Any] = {
            "owner": f"{self._count} ä",
            "text": json.dumps(self._random.choice(ODD_OBJECTS)),
            "ratio": self._random.randrange(-(1 << 24), 1 << 24) / 256,
            "balance": f"{self._random.randrange(1 - 10**9, 10**9) / 100:.2f}",
            "uid": str(UUID(int=self._random.getrandbits(128))),
        }
        for name in ("day", "at", "took"):
            kind = kinds[name]
            stored = self._random.choice(
                (kind.lowest, kind.highest, self._random.randint(kind.lowest, kind.highest))
            )
            values[name] = text_of(kind, load_of(kind)(stored))
        return {name: None if self._is_seldom(9) else it for name, it in values.items()}

    def _of(self, operation: str, asked: Any, answer: Callable[[Any], bool]) -> Sent:
        (route,) = [it for it in ROUTES if it.name == operation]
        body = json.dumps(asked).encode()
        head = self._head(route.method, route.path, {"content-type": TYPES["json"]}, body)
        return Sent(head + body, answer=answer)

    # ---- what began as an example

    def _changed(self) -> Sent:
        (route,) = self._random.choices(ROUTES, self._weights)
        asked = self._asked(route)
        if route.is_query:
            return self._without_body(route, asked)
        form: Form = self._random.choice(("json", "json", "msgpack"))
        try:
            body = self._encoded(asked, form)
        except (UnicodeEncodeError, OverflowError, TypeError):
            body = b"{"
        if self._is_seldom(5):
            body = self._damaged(body)
        said = TYPES[form]
        if self._is_seldom(12):
            others = ["text/plain", "application/x-www-form-urlencoded", "x", ""]
            said = self._random.choice([*TYPES.values(), *others])
        headers = {"content-type": said, **self._odd_headers()}
        head = self._head(self._method(route), self._path(route), headers, body)
        return Sent(head + body)

    def _without_body(self, route: Route, asked: dict[str, Any]) -> Sent:
        query = urlencode({name: _text(it) for name, it in asked.items()}, errors="replace")
        method = self._method(route)
        target = f"{self._path(route)}?{query}" if query else self._path(route)
        return Sent(self._head(method, target, self._odd_headers(), b""))

    def _asked(self, route: Route) -> dict[str, Any]:
        asked: dict[str, Any] = json.loads(json.dumps(EXAMPLES[route.name].request))
        for name in ("table", "path", "source", "destination"):
            if name in asked:
                asked[name] = self._random.choice((*TARGETS, asked[name], "//fuzz/new"))
        if any(it.name == "timeout_ms" for it in msgspec.structs.fields(route.request)):
            asked["timeout_ms"] = WAIT_MS
        if "sql" in asked:
            asked["sql"] = asked["sql"].replace("//bank/accounts", self._random.choice(TARGETS))
        if asked.get("table") == TARGETS[-1]:
            self._draw_logical(asked.get("rows", ()))
        for _ in range(self._random.choice((0, 1, 1, 2, 3))):
            asked = self._mutated(asked)
        if route.name in NEVER_ALL:
            for name in ("path", "source", "id"):
                given = asked.get(name)
                if not isinstance(given, str) or len(given.strip("/*").split("/")) < 2:
                    asked[name] = "//fuzz/never"
        return asked

    def _draw_logical(self, rows: Sequence[dict[str, Any]]) -> None:
        """Give each row a value of a logical type, or what may be none."""
        for row in rows:
            name = self._random.choice(LOGICAL)["name"]
            row[name] = self._logical_values().get(name, 1)
            if self._is_seldom(2):
                row[name] = self._random.choice(LOGICAL_TEXTS)

    def _mutated(self, value: dict[str, Any]) -> dict[str, Any]:
        """The same with one thing in it changed, anywhere."""
        places = list(_places(value))
        if not places or self._is_seldom(12):
            return {**value, self._random.choice(ODD_TEXTS): self._odd()}
        holder, key = self._random.choice(places)
        draw = self._random.random()
        if draw < 0.1:
            del holder[key]
        elif draw < 0.15 and isinstance(holder, list):
            holder += holder * 3
        else:
            holder[key] = self._odd()
        return value

    def _odd(self) -> Any:
        draw = self._random.random()
        if draw < 0.25:
            return self._random.choice(ODD_TEXTS)
        if draw < 0.35:
            return self._random.choice(LOGICAL_TEXTS)
        if draw < 0.55:
            return self._random.choice(ODD_NUMBERS)
        if draw < 0.85:
            return json.loads(json.dumps(self._random.choice(ODD_OBJECTS)))
        if draw < 0.95:
            return self._random.choice((None, True, False))
        value: Any = 1
        is_map = self._random.random() < 0.5
        for _ in range(self._random.choice((20, 31, 33, 41, 70, 300))):
            value = {"a": value} if is_map else [value]
        return value

    def _encoded(self, value: Any, form: str) -> bytes:
        if form == "msgpack":
            if self._is_seldom(4):
                value = _with_bytes(value)
            return msgspec.msgpack.encode(value)
        return json.dumps(value).encode()

    def _damaged(self, body: bytes) -> bytes:
        changed = bytearray(body)
        draw = self._random.random()
        if draw < 0.3:
            return bytes(changed[: self._random.randrange(len(changed) + 1)])
        if draw < 0.4:
            return self._random.randbytes(self._random.randrange(200))
        if draw < 0.5:
            return self._random.choice(
                (b"[" * 5000, b'{"a":' * 3000, b"\x91" * 5000, b"\x81\xa1a" * 2000)
            )
        for _ in range(self._random.choice((1, 1, 2, 5))):
            if changed:
                changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed)

    # ---- streams

    def _stream(self, form: Form) -> tuple[Form, bytes]:
        rows = [{"id": it, "owner": "x", "balance": it} for it in range(20)]
        if form == "arrow":
            sink = pyarrow.BufferOutputStream()
            table = pyarrow.Table.from_pylist(rows)
            with pyarrow.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=7)
            return form, sink.getvalue().to_pybytes()
        if form == "msgpack":
            return form, b"".join(map(msgspec.msgpack.encode, rows))
        return form, b"".join(json.dumps(it).encode() + b"\n" for it in rows)

    def _in_bulk(self) -> Sent:
        form, body = self._random.choice(self._bulk)
        if not self._is_seldom(5):
            body = self._damaged(body)
        asked: dict[str, Any] = {"table": self._random.choice((*TARGETS, TARGETS[1]))}
        if self._is_seldom(3):
            asked = self._mutated(asked)
        query = urlencode({name: _text(it) for name, it in asked.items()}, errors="replace")
        headers = {"content-type": TYPES[form], **self._odd_headers()}
        if self._is_seldom(2):
            headers["transfer-encoding"] = "chunked"
            body = b"".join(b"%x\r\n%s\r\n" % (len(it), it) for it in _pieces(body)) + b"0\r\n\r\n"
            return Sent(self._head("POST", f"/v1/bulk/write?{query}", headers, None) + body)
        return Sent(self._head("POST", f"/v1/bulk/write?{query}", headers, body) + body)

    # ---- addresses, headers, and what is hardly HTTP

    def _odd_address(self) -> Sent:
        route = self._random.choice(ROUTES)
        path = list(self._path(route))
        for _ in range(self._random.choice((1, 2, 5))):
            at = self._random.randrange(len(path) + 1)
            path[at:at] = self._random.choice(
                (
                    "/",
                    "//",
                    ".",
                    "..",
                    "%2e%2e",
                    "%00",
                    "%ff",
                    "%",
                    "?",
                    "#",
                    "x",
                    "é",
                    "%2F",
                    "{",
                    "\\",
                    ":",
                )
            )
            if self._is_seldom(3):
                del path[self._random.randrange(len(path))]
        target = "".join(path)
        if not target.startswith("/") or self._is_seldom(20):
            target = self._random.choice(("/", "*", "http://x/", f"/{target}", "/" + "z" * 9000))
        method = self._random.choice(PATCHES)
        body = self._random.choice((b"", b"{}", b"x"))
        headers = {"content-type": TYPES["json"], **self._odd_headers()}
        return Sent(self._head(method, target, headers, body) + body)

    def _odd_headers(self) -> dict[str, str]:
        if not self._is_seldom(6):
            return {}
        odd = {
            "accept": ["*/*", "text/html", "application/msgpack", "x;q=0", "," * 2000, "a/b;q=nan"],
            "x-request-id": ["", "a" * 65, "a b", "ok-1", "\xff"],
            "expect": ["100-continue", "nothing"],
            "content-encoding": ["gzip"],
            "authorization": ["Bearer x", "\xff", "x" * 5000],
            "origin": ["http://[", "null", "http://evil.example"],
            "range": ["bytes=0-1"],
            "cookie": ["a=b"],
            "connection": ["close", "upgrade", "keep-alive, x"],
            "upgrade": ["websocket", "h2c"],
            "if-none-match": ["*"],
            "x-http-method-override": ["DELETE"],
            "x-long": ["y" * 20_000],
        }
        name = self._random.choice(list(odd))
        return {name: self._random.choice(odd[name])}

    def _odd_http(self) -> Sent:
        right = self._of("generate_timestamps", {"count": 1}, lambda it: True).content
        draw = self._random.randrange(8)
        if draw == 0:
            return Sent(self._random.randbytes(self._random.randrange(1, 300)) + b"\r\n\r\n")
        if draw == 1:
            return Sent(right[: self._random.randrange(1, len(right))], is_waited_for=False)
        if draw == 2:
            return Sent(self._damaged_head(right), is_waited_for=False)
        if draw == 3:
            transfer = self._random.choice(TRANSFERS).encode()
            head = b"POST /v1/timestamps HTTP/1.1\r\nhost: x\r\ntransfer-encoding: " + transfer
            return Sent(
                head + b"\r\n\r\n" + self._random.choice((b"zz\r\n", b"0\r\n\r\n", b"5\r\n{}")),
                is_waited_for=False,
            )
        if draw == 4:
            length = self._random.choice((b"-1", b"x", b"999999999", b"1, 2", b""))
            head = b"POST /v1/timestamps HTTP/1.1\r\nhost: x\r\ncontent-length: " + length
            return Sent(head + b"\r\n\r\n{}", is_waited_for=False)
        if draw == 5:
            return Sent(
                right.replace(b"HTTP/1.1", self._random.choice((b"HTTP/1.0", b"HTTP/3", b"X"))),
                is_waited_for=False,
            )
        if draw == 6:
            return Sent(right + self._random.randbytes(20), is_waited_for=False)
        return Sent(right * self._random.randrange(2, 5), is_waited_for=False)

    def _damaged_head(self, request: bytes) -> bytes:
        changed = bytearray(request)
        for _ in range(3):
            changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed)

    # ---- parts

    def _head(self, method: str, target: str, headers: dict[str, str], body: bytes | None) -> bytes:
        lines = [f"{method} {target} HTTP/1.1", f"host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def _method(self, route: Route) -> str:
        return self._random.choice(PATCHES) if self._is_seldom(20) else route.method

    def _path(self, route: Route) -> str:
        known = self._transactions or ["0-1-2-0"]
        of = self._random.choice(known)
        if self._is_seldom(5):
            of = self._random.choice(
                ("x", "0-0-0-0", "1ac0e72c-a1ec4e72-b4c10002-1", "%00", "1-1-3-1")
            )
        return route.path.replace("{transaction}", of)

    def _is_seldom(self, one_in: int) -> bool:
        return self._random.randrange(one_in) == 0


def _places(value: Any, depth: int = 0) -> Any:
    """Whatever holds something, and where; not in the depths of what was made up."""
    keys: Sequence[Any] = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys if depth < DEPTH_MAX else ():
        yield value, key
        yield from _places(value[key], depth + 1)


def _with_bytes(value: Any) -> Any:
    """As MessagePack has more than JSON has."""
    if isinstance(value, dict):
        return {name: _with_bytes(it) for name, it in value.items()}
    if isinstance(value, list):
        return [_with_bytes(it) for it in value] or {1: 2}
    if isinstance(value, str) and not value.startswith("//"):
        return value.encode("utf-8", "surrogatepass")
    if value is None:
        return msgspec.msgpack.Ext(5, b"x")
    return value


def _pieces(body: bytes) -> list[bytes]:
    return [it for it in (body[: len(body) // 3], body[len(body) // 3 :]) if it]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
