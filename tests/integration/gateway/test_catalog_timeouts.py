"""`timeout_ms` of calls of the catalog over REST: they end in that time if the master is silent."""

import re
from typing import Any, Final

import pytest

from dodona_local.launcher import LocalCluster
from integration.gateway.rest import BY_NAME, Rest

pytestmark = pytest.mark.integration

TIMEOUT_MS: Final = 300
PATH: Final = "//timed/t"
SCHEMA: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
MOVED: Final = {"source": PATH, "destination": "//timed/u"}
CALLS: Final[dict[str, dict[str, Any]]] = {
    "create_table": {"path": "//timed/new", "schema": SCHEMA},
    "list_tables": {},
    "get_table": {"path": PATH},
    "reshard_table": {"path": PATH, "pivot_keys": [[], [5]]},
    "alter_table": {"path": PATH, "schema": SCHEMA},
    "get_cluster": {},
    "create_directory": {"path": "//timed/d"},
    "get_node": {"path": f"{PATH}/@id"},
    "set_node": {"path": f"{PATH}/@x", "value": 1},
    "remove_node": {"path": PATH},
    "list_nodes": {"path": "//"},
    "node_exists": {"path": PATH},
    "move_node": MOVED,
    "copy_node": MOVED,
}


def test_a_call_of_the_catalog_ends_in_its_time_if_the_master_is_silent(
    gateways: LocalCluster, rest: Rest
) -> None:
    rest("create_table", path=PATH, schema=SCHEMA)
    gateways.pause("master")
    try:
        told = {
            name: rest.refused(name, timeout_ms=TIMEOUT_MS, **fields)
            for name, fields in CALLS.items()
        }
    finally:
        gateways.resume("master")
    for name, problem in told.items():
        assert (problem.kind, problem.attributes["server"]) == ("unavailable", "master"), name
        waits_ms = [int(it) for it in re.findall(r"(\d+) ms", problem.detail)]
        assert waits_ms, problem
        assert max(waits_ms) <= TIMEOUT_MS, (name, problem)


def test_each_call_of_the_catalog_has_a_time() -> None:
    """Those that mount tablets have one with a default."""
    paths = ("/v1/table", "/v1/tables", "/v1/node", "/v1/director", "/v1/cluster")
    found = {name for name, it in BY_NAME.items() if it.path.startswith(paths)}
    untimed = {it for it in found if "timeout_ms" not in BY_NAME[it].request.__struct_fields__}
    assert untimed == {"get_copies"}
