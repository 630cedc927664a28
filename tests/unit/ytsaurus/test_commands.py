"""The table of commands: what the client asks for first, and all that follows from it."""

from dodona_ytsaurus.commands.api import COMMANDS

LIGHT_AND_VOLATILE = (
    *("create", "remove", "copy", "move", "lock", "mount_table", "unmount_table", "remount_table"),
    *("freeze_table", "unfreeze_table", "reshard_table", "alter_table", "start_transaction"),
    *("ping_transaction", "commit_transaction", "abort_transaction", "get_tablet_infos"),
    "execute_batch",
)
LIGHT = ("get", "list", "exists", "generate_timestamp", "get_tablet_errors")


def row(name: str) -> tuple[str, str, bool, bool, str]:
    it = COMMANDS[name]
    return it.input_type, it.output_type, it.is_volatile, it.is_heavy, it.method


def test_commands_travel_as_ytsaurus_s_do() -> None:
    for name in LIGHT_AND_VOLATILE:
        assert row(name) == ("null", "structured", True, False, "POST"), name
    for name in LIGHT:
        assert row(name) == ("null", "structured", False, False, "GET"), name
    assert row("set") == ("structured", "structured", True, False, "PUT")
    for name in ("insert_rows", "delete_rows", "lock_rows"):
        assert row(name) == ("tabular", "structured", True, True, "PUT"), name
    assert row("lookup_rows") == ("tabular", "tabular", False, True, "PUT")
    assert row("select_rows") == ("null", "tabular", False, True, "GET")
    assert row("explain_query") == ("null", "structured", False, True, "GET")
    assert row("trim_rows") == ("null", "structured", True, True, "POST")


def test_these_are_all_commands() -> None:
    others = ("set", "insert_rows", "delete_rows", "lock_rows", "lookup_rows", "select_rows")
    known = {*LIGHT_AND_VOLATILE, *LIGHT, *others, "explain_query", "trim_rows"}
    assert set(COMMANDS) == known


def test_the_name_of_each_command_equals_its_key_in_the_table() -> None:
    assert all(name == it.name for name, it in COMMANDS.items())


def test_commands_that_change_the_tree_or_tables_need_the_admin_role() -> None:
    changing = {name for name, it in COMMANDS.items() if it.role == "admin"}
    assert changing == {
        *("create", "remove", "copy", "move", "set", "lock", "mount_table", "unmount_table"),
        *("remount_table", "freeze_table", "unfreeze_table", "reshard_table", "alter_table"),
    }
