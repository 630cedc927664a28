"""Every command of YTsaurus's API, over HTTP, with no token, a bad one, one of a role that is too
little or elsewhere, and one that is enough. A command without a row here fails."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest

import dodona
from dodona_local.launcher import LocalCluster
from dodona_ytsaurus.commands.api import COMMANDS
from integration.ytsaurus.plain import ask, error_of

pytestmark = pytest.mark.integration

BELOW: Final = {"admin": "write", "write": "read"}
SCHEMA: Final = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "string"},
]
ROW: Final = b'{"k":1,"v":"x"}'
KEY: Final = b'{"k":1}'
_numbers: Final = itertools.count()

Parameters = Callable[[str], dict[str, Any]]


class Asked(NamedTuple):
    """How a command is asked for at a table's path, which role that takes (None: any token), and
    what the answer is, if it is allowed."""

    role: str | None
    parameters: Parameters
    content: bytes = b""
    code: int = 0


def at_path(**others: Any) -> Parameters:
    return lambda path: {"path": path, "input_format": "json", **others}


ASKED: Final[dict[str, Asked]] = {
    "create": Asked("admin", lambda path: {"path": f"{path}/new", "type": "map_node"}, code=1),
    "remove": Asked("admin", at_path()),
    "set": Asked("admin", lambda path: {"path": f"{path}/@mine", "input_format": "json"}, b"1"),
    "copy": Asked(
        "admin", lambda path: {"source_path": path, "destination_path": f"{path}/c"}, code=1
    ),
    "move": Asked(
        "admin", lambda path: {"source_path": path, "destination_path": f"{path}/c"}, code=1
    ),
    "lock": Asked("admin", at_path(), code=1),
    "get": Asked("read", at_path()),
    "list": Asked("read", lambda path: {"path": f"{path}/@"}),
    "exists": Asked("read", at_path()),
    "mount_table": Asked("admin", at_path()),
    "unmount_table": Asked("admin", at_path()),
    "freeze_table": Asked("admin", at_path()),
    "unfreeze_table": Asked("admin", at_path()),
    "remount_table": Asked("admin", at_path()),
    "reshard_table": Asked("admin", at_path(pivot_keys=[[]]), code=1706),
    "alter_table": Asked("admin", at_path(dynamic=True)),
    "get_tablet_infos": Asked("read", at_path(tablet_indexes=[0])),
    "get_tablet_errors": Asked("read", at_path()),
    "insert_rows": Asked("write", at_path(), ROW),
    "delete_rows": Asked("write", at_path(), KEY),
    "lock_rows": Asked("write", at_path(), KEY, code=1),
    "lookup_rows": Asked("read", at_path(), KEY),
    "trim_rows": Asked("write", at_path(), code=1),
    "select_rows": Asked("read", lambda path: {"query": f"* from [{path}]"}),
    "explain_query": Asked("read", lambda path: {"query": f"* from [{path}]"}),
    "start_transaction": Asked(None, lambda path: {"type": "tablet"}),
    "ping_transaction": Asked(None, lambda path: {"transaction_id": "1-2-30002-4"}, code=11000),
    "commit_transaction": Asked(None, lambda path: {"transaction_id": "1-2-30002-4"}, code=11000),
    "abort_transaction": Asked(None, lambda path: {"transaction_id": "1-2-30002-4"}, code=11000),
    "generate_timestamp": Asked(None, lambda path: {}),
    "execute_batch": Asked(None, lambda path: {"requests": []}),
}


@pytest.fixture
def db(guarded_cluster: LocalCluster) -> Iterator[dodona.Client]:
    with dodona.connect(guarded_cluster.master_url) as client:
        yield client


@pytest.fixture
def path(db: dodona.Client) -> str:
    """Of a mounted table."""
    name = f"//access/{next(_numbers)}"
    db.create_table(name, SCHEMA)
    db.mount_table(name)
    return name


def test_every_command_has_a_row() -> None:
    assert list(ASKED) == [it for it in ASKED if it in COMMANDS]
    assert set(COMMANDS) == set(ASKED)


@pytest.mark.parametrize("command", ASKED)
def test_each_command_requires_its_role(
    command: str, guarded_cluster: LocalCluster, make_token: Any, path: str
) -> None:
    url, asked = guarded_cluster.gateway_urls[0], ASKED[command]

    def outcome(token: str | None) -> tuple[int, int]:
        """Status and code."""
        answer = ask(url, command, asked.parameters(path), asked.content, token=token)
        return answer.status_code, 0 if answer.ok else error_of(answer)["code"]

    assert outcome(None) == (401, 900)
    assert outcome("dodona_nonsense") == (401, 900)
    assert outcome(make_token("x", "read://x").replace("_", "__")) == (401, 900)
    if asked.role is not None:
        assert outcome(make_token("elsewhere", "admin://elsewhere/**")) == (403, 901)
    if asked.role in BELOW:
        below = BELOW[asked.role]
        assert outcome(make_token("too little", f"{below}:{path}/**")) == (403, 901)
    allowed = outcome(make_token("enough", f"{asked.role or 'read'}:{path}/**"))
    assert allowed == ((400, asked.code) if asked.code else (200, 0))


def test_a_grant_for_one_table_is_enough_for_its_rows(
    guarded_cluster: LocalCluster, make_token: Any, path: str
) -> None:
    url = guarded_cluster.gateway_urls[0]
    token = make_token("one table", f"write:{path}")
    for command in ("insert_rows", "lookup_rows", "select_rows", "get", "exists"):
        asked = ASKED[command]
        answer = ask(url, command, asked.parameters(path), asked.content, token=token)
        assert answer.status_code == 200, answer.text


def test_a_batch_does_not_extend_the_grants_of_a_token(
    guarded_cluster: LocalCluster, make_token: Any, path: str
) -> None:
    url = guarded_cluster.gateway_urls[0]
    commands = [it for it, asked in ASKED.items() if asked.role == "admin"]
    inner = [
        {"command": it, "parameters": ASKED[it].parameters(path), "input": 1} for it in commands
    ]
    token = make_token("reader", f"write:{path}/**")
    answer = ask(url, "execute_batch", {"requests": inner}, token=token)
    results = answer.json()["results"]
    assert [it["error"]["code"] for it in results] == [901] * len(commands)


def test_rows_are_no_part_of_a_batch(guarded_cluster: LocalCluster, path: str) -> None:
    url = guarded_cluster.gateway_urls[0]
    heavy = [name for name, it in COMMANDS.items() if it.is_heavy] + ["execute_batch", "nothing"]
    inner = [{"command": name, "parameters": ASKED["get"].parameters(path)} for name in heavy]
    answer = ask(url, "execute_batch", {"requests": inner}, token=guarded_cluster.admin_token)
    assert [it["error"]["code"] for it in answer.json()["results"]] == [1] * len(heavy)
