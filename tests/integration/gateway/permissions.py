"""What each operation takes: a valid request, and the grants that are enough for it, and not.

Owns: the table of the matrix test. It is also a story: in this order every request can be carried
out once.
"""

from typing import Any, Final

import msgspec

Fields = dict[str, Any]

MINE: Final = "//mine/**"
OTHERS: Final = "//others/**"
TABLE: Final = "//mine/t"
MADE: Final = "//mine/made"
LEASES: Final = "//mine/leases"
LEASE: Final = {"table": LEASES, "name": "x", "owner": "ann", "epoch": 1}
SCHEMA: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "utf8"},
]
LOWER: Final = {"admin": "write", "write": "read"}
ROWS_IN: Final = ("application/x-ndjson", b'{"id": 7, "v": "bulk"}\n')


class Case(msgspec.Struct, frozen=True):
    """One operation. `role` is what it takes on `MINE`; with `is_everywhere` on everything, with
    `is_somewhere` anywhere at all, so that a grant on other paths is enough."""

    operation: str
    role: str
    fields: Fields = {}
    is_everywhere: bool = False
    is_somewhere: bool = False
    is_filtered: bool = False
    """What may not be seen is left out."""
    is_owners: bool = False
    """It is for whoever began the transaction, whatever its grants."""

    @property
    def in_transaction(self) -> bool:
        return self.operation.endswith("_transaction") and self.operation != "begin_transaction"

    @property
    def enough(self) -> str:
        """The least grant that is enough."""
        return f"{self.role}:{'/' if self.is_everywhere else MINE}"

    def too_little(self) -> list[str]:
        """Grants that are not."""
        if self.is_somewhere or self.is_owners or self.is_filtered:
            return []
        found = [f"{self.role}:{MINE if self.is_everywhere else OTHERS}"]
        if self.role in LOWER:
            found.append(f"{LOWER[self.role]}:{'/' if self.is_everywhere else MINE}")
        return found


def _in_transaction() -> tuple[Case, ...]:
    rows, keys = (
        {"table": TABLE, "rows": [{"id": 5, "v": "x"}]},
        {"table": TABLE, "keys": [{"id": 1}]},
    )
    return (
        Case("insert_rows_in_transaction", "write", rows),
        Case("delete_rows_in_transaction", "write", keys),
        Case("lock_rows_in_transaction", "write", keys),
        Case("lookup_rows_in_transaction", "read", keys),
        Case("lookup_versions_in_transaction", "read", keys),
        Case("select_rows_in_transaction", "read", {"table": TABLE}),
        Case("query_rows_in_transaction", "read", {"sql": f"select * from [{TABLE}]"}),
        Case("ping_transaction", "read", is_owners=True),
        Case("commit_transaction", "read", is_owners=True),
        Case("abort_transaction", "read", is_owners=True),
        Case("get_transaction", "read", is_somewhere=True),
    )


def _on(path: str, **fields: Any) -> Fields:
    return {"path": path, **fields}


CASES: Final[tuple[Case, ...]] = (
    Case("generate_timestamps", "read", {"count": 2}, is_somewhere=True),
    Case("get_cluster", "read", is_somewhere=True),
    Case("get_copies", "read", is_somewhere=True),
    Case("create_directory", "admin", _on("//mine/d")),
    Case("create_table", "admin", _on(MADE, schema=SCHEMA, mount=True)),
    Case("get_table", "read", _on(TABLE)),
    Case("list_tables", "read", {"prefix": "//mine"}, is_filtered=True),
    Case("insert_rows", "write", {"table": TABLE, "rows": [{"id": 2, "v": "y"}]}),
    Case("lookup_rows", "read", {"table": TABLE, "keys": [{"id": 1}]}),
    Case("select_rows", "read", {"table": TABLE}),
    Case("lookup_versions", "read", {"table": TABLE, "keys": [{"id": 1}]}),
    Case("query_rows", "read", {"sql": f"select * from [{TABLE}]"}),
    Case("delete_rows", "write", {"table": TABLE, "keys": [{"id": 2}]}),
    Case("create_lease_table", "admin", {"table": LEASES}),
    Case("acquire_lease", "write", {"table": LEASES, "name": "x", "owner": "ann"}),
    Case("renew_lease", "write", LEASE),
    Case("release_lease", "write", LEASE),
    Case("begin_transaction", "read", is_somewhere=True),
    *_in_transaction(),
    Case("bulk_write", "write", {"table": TABLE, "content": ROWS_IN}),
    Case("bulk_read", "read", {"table": TABLE}),
    Case("set_node", "admin", _on(f"{MADE}/@x", value=1)),
    Case("get_node", "read", _on(f"{MADE}/@x")),
    Case("list_nodes", "read", _on("//mine/d")),
    Case("node_exists", "read", _on("//mine/d")),
    Case("remount_table", "admin", _on(MADE)),
    Case("freeze_table", "admin", _on(MADE)),
    Case("unfreeze_table", "admin", _on(MADE)),
    Case("unmount_table", "admin", _on(MADE)),
    Case("alter_table", "admin", _on(MADE, schema=SCHEMA)),
    Case("reshard_table", "admin", _on(MADE, tablet_count=1)),
    Case("mount_table", "admin", _on(MADE)),
    Case("copy_node", "admin", {"source": "//mine/d", "destination": "//mine/copy"}),
    Case("move_node", "admin", {"source": "//mine/copy", "destination": "//mine/moved"}),
    Case("remove_node", "admin", _on("//mine/moved")),
    Case("create_token", "admin", {"name": "eve", "grants": ["read:/"]}, is_everywhere=True),
    Case("list_tokens", "admin", is_everywhere=True),
    Case("revoke_token", "admin", is_everywhere=True),
)
