"""Examples of each REST operation: a request, and its answer. Pure.

Owns: the examples in the OpenAPI document. Together they are one story: a table of accounts is
made, and money moves in it. Tests send the requests in this order, and compare the answers with
these.
"""

from typing import Any, Final, NamedTuple

ACCOUNTS: Final = "//bank/accounts"
LEASES: Final = "//jobs/leases"
TRANSACTION: Final = "1ac0e72c-a1ec4e72-b4c10002-983ccb7c"
START: Final = 1927794819395767922
COMMIT: Final = 1927794819421551684
_TABLE: Final = {
    "path": ACCOUNTS,
    "schema": [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "owner", "type": "string"},
        {"name": "balance", "type": "int64"},
    ],
    "atomicity": "full",
    "tablets": [{"tablet": 2, "pivot_key": [], "state": "mounted", "cell": 0, "revision": 1}],
    "settings": {},
    "is_mounted": True,
}
_SET: Final = {**_TABLE, "settings": {"max_data_versions": 3}}
"""The same table, with the attribute that is set later."""
_UNMOUNTED: Final = {
    **_SET,
    "tablets": [{"tablet": 2, "pivot_key": [], "state": "unmounted", "cell": 0, "revision": 1}],
    "is_mounted": False,
}
_FROZEN: Final = {
    **_SET,
    "tablets": [{"tablet": 2, "pivot_key": [], "state": "frozen", "cell": 0, "revision": 1}],
    "is_mounted": False,
}
_CUT: Final = {
    **_UNMOUNTED,
    "tablets": [
        {"tablet": 3, "pivot_key": [], "state": "unmounted", "cell": None, "revision": 0},
        {"tablet": 4, "pivot_key": [1000], "state": "unmounted", "cell": None, "revision": 0},
    ],
}
_MOUNTED: Final = {
    **_SET,
    "tablets": [
        {"tablet": 3, "pivot_key": [], "state": "mounted", "cell": 0, "revision": 1},
        {"tablet": 4, "pivot_key": [1000], "state": "mounted", "cell": 1, "revision": 1},
    ],
}
_RICH: Final = {"id": 1, "owner": "ann", "balance": 100}
_POOR: Final = {"id": 2, "owner": "bob", "balance": 20}
_TOKEN: Final = {
    "id": "0123456789abcdef",
    "name": "ann",
    "grants": ["write://bank/**"],
    "state": "valid",
    "created_us": 1795398899000000,
    "expires_us": None,
    "revoked_us": None,
}
_COPIES: Final = {
    "cell": 0,
    "owner": "node-0/6b1f0c2d9a8e7f35",
    "epoch": 4,
    "is_serving": True,
    "text": "2 of 3 copies: http://127.0.0.1:8507 has not answered for 75 s",
    "copies_wanted": 3,
    "copies_min": 2,
    "coordinator_silent_ms": 840,
    "replicas": [
        {
            "address": f"http://127.0.0.1:{port}",
            "replica": replica,
            "role": role,
            "lag_entries": 0,
            "lag_ms": 0,
            "silent_ms": silent_ms,
            "reason": "",
        }
        for port, replica, role, silent_ms in (
            (8505, "b4c1", "member", 90),
            (8506, "77d0", "member", 41),
            (8507, "0e5a", "spare", 75_000),
        )
    ],
}


class Example(NamedTuple):
    """The fields of a request, and its answer."""

    request: dict[str, Any]
    answer: dict[str, Any]


EXAMPLES: Final[dict[str, Example]] = {
    "generate_timestamps": Example({"count": 3}, {"first": START, "count": 3}),
    "get_cluster": Example(
        {},
        {
            "proxies": ["http://127.0.0.1:8501"],
            "cells": [
                {
                    "cell": 0,
                    "address": "http://127.0.0.1:8503",
                    "is_alive": True,
                    "tablet_count": 1,
                }
            ],
        },
    ),
    "get_copies": Example({}, {"logs": [_COPIES], "silent_cells": []}),
    "create_directory": Example(
        {"path": "//bank/empty", "attributes": {"owner": "ann"}, "recursive": True}, {}
    ),
    "create_table": Example({"path": ACCOUNTS, "schema": _TABLE["schema"], "mount": True}, _TABLE),
    "get_table": Example({"path": ACCOUNTS}, _TABLE),
    "list_tables": Example({"prefix": "//bank"}, {"paths": [ACCOUNTS]}),
    "insert_rows": Example({"table": ACCOUNTS, "rows": [_RICH, _POOR]}, {"timestamp": COMMIT}),
    "lookup_rows": Example({"table": ACCOUNTS, "keys": [{"id": 1}]}, {"rows": [_RICH]}),
    "select_rows": Example(
        {"table": ACCOUNTS, "lower": [1], "limit": 1},
        {"rows": [_RICH], "next": [2], "timestamp": START},
    ),
    "lookup_versions": Example(
        {"table": ACCOUNTS, "keys": [{"id": 1}], "columns": ["balance"]},
        {
            "rows": [
                {
                    "key": {"id": 1},
                    "write_timestamps": [COMMIT],
                    "delete_timestamps": [],
                    "values": {
                        "balance": [{"timestamp": COMMIT, "value": 100, "aggregate": False}]
                    },
                    "more_below": None,
                }
            ]
        },
    ),
    "query_rows": Example(
        {
            "sql": "select max(balance) as most from [//bank/accounts] where id < $end",
            "parameters": {"end": 2},
        },
        {"columns": ["most"], "types": ["int64"], "rows": [[100]]},
    ),
    "create_lease_table": Example({"table": LEASES}, {}),
    "acquire_lease": Example(
        {"table": LEASES, "name": "mail", "owner": "ann", "lease_ms": 60_000},
        {"table": LEASES, "name": "mail", "owner": "ann", "epoch": 1},
    ),
    "renew_lease": Example({"table": LEASES, "name": "mail", "owner": "ann", "epoch": 1}, {}),
    "release_lease": Example({"table": LEASES, "name": "mail", "owner": "ann", "epoch": 1}, {}),
    "begin_transaction": Example(
        {"lease_ms": 30_000},
        {
            "transaction": TRANSACTION,
            "start_timestamp": START,
            "lease_ms": 30_000,
            "gateway": "http://127.0.0.1:8502",
        },
    ),
    "lookup_rows_in_transaction": Example(
        {"table": ACCOUNTS, "keys": [{"id": 2}]}, {"rows": [_POOR]}
    ),
    "lookup_versions_in_transaction": Example(
        {"table": ACCOUNTS, "keys": [{"id": 3}]}, {"rows": []}
    ),
    "select_rows_in_transaction": Example(
        {"table": ACCOUNTS, "lower": [2]}, {"rows": [_POOR], "next": None, "timestamp": START}
    ),
    "query_rows_in_transaction": Example(
        {"sql": "select count(*) as accounts from [//bank/accounts]"},
        {"columns": ["accounts"], "types": ["int64"], "rows": [[2]]},
    ),
    "insert_rows_in_transaction": Example(
        {"table": ACCOUNTS, "rows": [{"id": 1, "balance": 70}], "update": True},
        {"row_count": 1, "size_bytes": 33},
    ),
    "lock_rows_in_transaction": Example(
        {"table": ACCOUNTS, "keys": [{"id": 2}]}, {"row_count": 2, "size_bytes": 42}
    ),
    "delete_rows_in_transaction": Example(
        {"table": ACCOUNTS, "keys": [{"id": 3}]}, {"row_count": 3, "size_bytes": 66}
    ),
    "ping_transaction": Example({}, {}),
    "commit_transaction": Example({}, {"timestamp": COMMIT}),
    "get_transaction": Example({}, {"state": "committed", "timestamp": COMMIT}),
    "abort_transaction": Example({}, {}),
    "delete_rows": Example({"table": ACCOUNTS, "keys": [{"id": 3}]}, {"timestamp": COMMIT}),
    "bulk_write": Example(
        {"table": ACCOUNTS}, {"row_count": 2, "timestamp": COMMIT, "is_skipped": False}
    ),
    "bulk_read": Example({"table": ACCOUNTS, "lower": "[1]", "columns": "id,balance"}, {}),
    "set_node": Example({"path": f"{ACCOUNTS}/@max_data_versions", "value": 3}, {}),
    "get_node": Example({"path": f"{ACCOUNTS}/@max_data_versions"}, {"value": 3}),
    "list_nodes": Example({"path": "//bank"}, {"names": ["accounts", "empty"]}),
    "node_exists": Example({"path": "//bank/loans"}, {"value": False}),
    "remount_table": Example({"path": ACCOUNTS}, _SET),
    "freeze_table": Example({"path": ACCOUNTS}, _FROZEN),
    "unfreeze_table": Example({"path": ACCOUNTS}, _SET),
    "unmount_table": Example({"path": ACCOUNTS}, _UNMOUNTED),
    "alter_table": Example({"path": ACCOUNTS, "schema": _TABLE["schema"]}, _UNMOUNTED),
    "reshard_table": Example({"path": ACCOUNTS, "pivot_keys": [[], [1000]]}, _CUT),
    "mount_table": Example({"path": ACCOUNTS}, _MOUNTED),
    "copy_node": Example({"source": "//bank/empty", "destination": "//bank/copy"}, {}),
    "move_node": Example({"source": "//bank/copy", "destination": "//bank/moved"}, {}),
    "remove_node": Example({"path": "//bank/moved"}, {}),
    "create_token": Example(
        {"name": "ann", "grants": ["write://bank/**"]},
        {"token": "dodona_0123456789abcdef_" + "A" * 43, "about": _TOKEN},
    ),
    "list_tokens": Example({}, {"tokens": [_TOKEN]}),
    "revoke_token": Example(
        {"id": "0123456789abcdef"},
        {**_TOKEN, "state": "revoked", "revoked_us": 1795398900000000},
    ),
}
