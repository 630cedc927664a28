"""Thousands of requests with mutated parameters and bodies: every one is answered in YTsaurus's
form, none with a word of the program's insides, none as a failure of the server's."""

import http.client
import json
import random
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import yt.yson
from yt.wrapper import YtClient

from dodona_local.launcher import LocalCluster
from dodona_ytsaurus.commands.api import COMMANDS
from integration.ytsaurus.test_access import ASKED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

REQUESTS: Final = 1_500
SEEDS: Final = range(8)
INSIDES: Final = re.compile(
    rb"Traceback|dodona_(gateway|tablets|oracle)|dodona\._|site-packages|\.py\b|0x[0-9a-f]{8}"
    rb"|object at|msgspec|NoneType"
)
NAMES: Final = sorted(
    {
        *("path", "type", "attributes", "recursive", "force", "ignore_existing", "input_format"),
        *("output_format", "transaction_id", "mutation_id", "retry", "timeout", "pivot_keys"),
        *("tablet_count", "first_tablet_index", "last_tablet_index", "schema", "dynamic", "query"),
        *("timestamp", "retention_timestamp", "column_names", "keep_missing_rows", "versioned"),
        *("versioned_read_options", "update", "aggregate", "atomicity", "durability", "locks"),
        *("lock_type", "mode", "child_key", "attribute_key", "requests", "concurrency", "freeze"),
        *("tablet_indexes", "max_size", "return_only_value", "placeholder_values", "sticky"),
        *("output_row_limit", "source_path", "destination_path", "ignore_type_mismatch"),
    }
)
TEXTS: Final = (
    *("", "/", "//", "//@", "//x/@", "&", "#", "#1-2-3-4", "//sys", "//sys/tokens", "true"),
    *("full", "none", "sync", "async", "exclusive", "table", "map_node", "yson", "json", "tablet"),
    *("k", "v", "0-0-0-0", "1-2-10001-4", "1-2-30002-4", "//sys/tablet_cells", "<", "<a=1>//x"),
    *("* from [//fuzz/t0]", "k from [//fuzz/t1] where k = {x}", "//fuzz/t2/@schema/0/name"),
    *("ж\U0001f600", "\x00"),
)


class Mutator:
    """Requests that are nearly right."""

    def __init__(self, seed: int, path: str) -> None:
        self._random = random.Random(seed)
        self._path = path

    def request(self) -> tuple[str, str, dict[str, str], bytes]:
        """Method, address, headers, body."""
        draw = self._random
        command = draw.choice(list(COMMANDS))
        asked = ASKED[command]
        parameters = self._mutated(asked.parameters(self._path))
        body = self._body(asked.content)
        encoded, is_json = self._encoded(parameters, COMMANDS[command].method == "POST")
        headers = {"X-YT-Header-Format": "json" if is_json else "<format=text>yson"}
        media = "application/json" if is_json else "application/x-yt-yson-text"
        if draw.random() < 0.05:
            headers["Content-Encoding"] = draw.choice(["gzip", "br", "deflate", "identity", "x"])
        if COMMANDS[command].method == "POST":
            headers["Content-Type"] = media
            body = encoded
        else:
            text = encoded.decode("latin-1")
            headers["X-YT-Parameters"] = re.sub(r"[\x00-\x1f\x7f]", " ", text)
        query = f"?{quote(draw.choice(NAMES))}=x" if draw.random() < 0.05 else ""
        return COMMANDS[command].method, f"/api/v4/{command}{query}", headers, body

    def _mutated(self, parameters: dict[str, Any]) -> dict[str, Any]:
        draw = self._random
        changed = dict(parameters)
        for _ in range(draw.choice([0, 1, 1, 2, 4])):
            name = draw.choice([*NAMES, *changed])
            changed[name] = self._value(3)
        return changed

    def _value(self, depth: int) -> Any:
        draw = self._random
        kind = draw.randrange(10 if depth else 7)
        if kind < 3:
            return draw.choice([*TEXTS, self._path, f"{self._path}/@mine/x", *NAMES])
        if kind < 5:
            return draw.choice([0, 1, -1, 2, 5, 10**6, 2**31, 2**63 - 1, -(2**63), 2**64 - 1])
        if kind == 5:
            return draw.choice([None, True, False, 1.5, float("inf"), float("nan"), b"\xff\xfe"])
        if kind == 6:
            return yt.yson.to_yson_type(draw.choice(TEXTS), attributes={"format": self._value(1)})
        if kind == 7:
            return [self._value(depth - 1) for _ in range(draw.randrange(4))]
        names = [draw.choice([*NAMES, "k", "v", "name", "$value", "$attributes", "sort_order"])]
        names += draw.sample(NAMES, draw.randrange(3))
        made = {name: self._value(depth - 1) for name in names}
        if kind == 8:
            return made
        return yt.yson.to_yson_type(self._value(0), attributes=made)

    def _encoded(self, parameters: dict[str, Any], may_be_binary: bool) -> tuple[bytes, bool]:
        draw = self._random
        if draw.random() < 0.3:
            encoded, is_json = json.dumps(_json(parameters)).encode(), True
        else:
            form = draw.choice(["text", "binary" if may_be_binary else "text"])
            encoded, is_json = yt.yson.dumps(parameters, yson_format=form), False
        return self._damaged(encoded), is_json

    def _body(self, content: bytes) -> bytes:
        draw = self._random
        if draw.random() < 0.5:
            rows = [{"k": self._value(1), "v": self._value(2)} for _ in range(draw.randrange(4))]
            content = yt.yson.dumps(rows, yson_type="list_fragment", yson_format="binary")
        return self._damaged(content)

    def _damaged(self, content: bytes) -> bytes:
        draw = self._random
        if not content or draw.random() < 0.7:
            return content
        damaged = bytearray(content)
        for _ in range(draw.choice([1, 1, 2, 8])):
            at = draw.randrange(len(damaged) or 1)
            what = draw.randrange(4)
            if what == 0:
                damaged[at : at + 1] = bytes([draw.randrange(256)])
            elif what == 1:
                del damaged[at : at + draw.randrange(1, 9)]
            elif what == 2:
                damaged[at:at] = draw.choice([b"{", b"}", b"[", b";", b"<", b"=", b"#", b"\x01"])
            else:
                damaged[at:at] = damaged[at : at + 20]
        return bytes(damaged)


def _json(value: Any) -> Any:
    attributes = getattr(value, "attributes", {})
    if isinstance(value, dict):
        plain: Any = {name: _json(it) for name, it in value.items()}
    elif isinstance(value, list):
        plain = [_json(it) for it in value]
    else:
        plain = value.decode("latin-1") if isinstance(value, bytes) else value
        plain = None if isinstance(value, yt.yson.YsonEntity) else plain
    return {"$value": plain, "$attributes": _json(attributes)} if attributes else plain


@pytest.mark.parametrize("seed", SEEDS)
def test_every_request_is_answered_in_order(
    open_cluster: LocalCluster, client: YtClient, seed: int
) -> None:
    path = f"//fuzz/t{seed}"
    before = open_cluster.processes["gateway"]
    mutator = Mutator(seed, path)
    schema = [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": "any"},
    ]
    host, port = open_cluster.gateway_urls[0].removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    good_count = 0
    for number in range(REQUESTS):
        if number % 250 == 0:  # mutated requests remove it now and then
            client.create(
                "table",
                path,
                recursive=True,
                force=True,
                ignore_existing=False,
                attributes={"dynamic": True, "schema": schema},
            )
            client.mount_table(path, sync=True)
        method, address, headers, body = mutator.request()
        connection.request(method, address, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        about = (seed, number, method, address, headers, body[:300], answer.status, content[:500])
        assert answer.status in (200, 400, 403), about
        assert INSIDES.search(content) is None, about
        if answer.status == 200:
            good_count += 1
        else:
            told = json.loads(content)
            assert set(told) == {"code", "message", "attributes", "inner_errors"}, about
            assert answer.getheader("X-YT-Response-Code") == str(told["code"]), about
            header = str(answer.getheader("X-YT-Error"))
            assert header.isascii(), about
            assert json.loads(header)["code"] == told["code"], about
            assert len(content) < 100_000, about
    connection.close()
    assert REQUESTS // 10 < good_count < REQUESTS
    after = open_cluster.processes["gateway"]
    assert (after.pid, after.start_count) == (before.pid, before.start_count)
    log: Path = open_cluster._launch.folder.log_path("gateway")
    assert "a REST handler failed" not in log.read_text()
