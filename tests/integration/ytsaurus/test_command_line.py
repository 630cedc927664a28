"""The `yt` command line tool of the wheel, as a process: its text output to the byte."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.integration

YT: Final = Path(sys.executable).with_name("yt")
TEXT: Final = ("--format", "<format=text>yson")
ATTRIBUTES: Final = (
    "{dynamic=%true;schema=[{name=x;type=string;sort_order=ascending};{name=y;type=int64}]}"
)
Run = Callable[..., bytes]


@pytest.fixture
def yt(url: str, tmp_path: Path) -> Run:
    """Runs it. → its output. Raises CalledProcessError."""
    known = {k: v for k, v in os.environ.items() if not k.startswith("YT_")}
    environment = {**known, "YT_PROXY": url, "HOME": str(tmp_path)}

    def run(*words: str, stdin: bytes = b"") -> bytes:
        ended = subprocess.run(
            [str(YT), *words],
            input=stdin,
            env=environment,
            capture_output=True,
            timeout=60,
            check=True,
        )
        return ended.stdout

    return run


def test_rows_go_in_and_out(yt: Run, folder: str) -> None:
    path = f"{folder}/t"
    made = yt("create", "table", path, "--attributes", ATTRIBUTES)
    assert made.decode().rstrip().count("-") == 3
    yt("mount-table", path, "--sync")
    yt("insert-rows", path, "--format", "yson", stdin=b'{x=b;y=2};{"x"="a";"y"=1;};{x=c}')
    everything = b'{"x"="a";"y"=1;};\n{"x"="b";"y"=2;};\n{"x"="c";"y"=#;};\n'
    assert yt("select-rows", f"* from [{path}]", *TEXT) == everything
    found = yt("lookup-rows", path, *TEXT, stdin=b"{x=b};{x=nothing}")
    assert found == b'{"x"="b";"y"=2;};\n'
    json = yt("select-rows", f"* from [{path}] where y > 1", "--format", "json")
    assert json == b'{"x":"b","y":2}\n'
    yt("insert-rows", path, "--update", *TEXT, stdin=b"{x=c;y=3}")
    yt("delete-rows", path, "--format", "yson", stdin=b"{x=b};")
    assert yt("select-rows", f"* from [{path}]", *TEXT) == (
        b'{"x"="a";"y"=1;};\n{"x"="c";"y"=3;};\n'
    )


def test_the_life_of_a_table(yt: Run, folder: str) -> None:
    path = f"{folder}/t"
    yt("create", "table", path, "--attributes", ATTRIBUTES)
    state = ("get", f"{path}/@tablet_state")
    for command, after in (
        ("mount-table", "mounted"),
        ("freeze-table", "frozen"),
        ("unfreeze-table", "mounted"),
        ("unmount-table", "unmounted"),
    ):
        yt(command, path, "--sync")
        assert yt(*state) == b'"%s"\n' % after.encode()
    yt("reshard-table", path, "[]", '["b"]', "--sync")
    assert yt("get", f"{path}/@pivot_keys", *TEXT) == b'[[];["b";];]\n'
    wider = "[{name=x;type=string;sort_order=ascending};{name=y;type=int64};{name=z;type=any}]"
    yt("alter-table", path, "--schema", wider)
    yt("mount-table", path, "--sync")
    yt("insert-rows", path, "--format", "yson", stdin=b"{x=a;z={k=[1;%true;#]}}")
    rows = yt("select-rows", f"* from [{path}]", *TEXT)
    assert rows == b'{"x"="a";"y"=#;"z"={"k"=[1;%true;#;];};};\n'


def test_nodes_and_attributes(yt: Run, folder: str) -> None:
    yt("create", "map_node", f"{folder}/a/b", "-r")
    yt("create", "map_node", f"{folder}/a/b", "-r", "-i")
    assert yt("list", f"{folder}/a") == b"b\n"
    assert yt("exists", f"{folder}/a") == b"true\n"
    assert yt("exists", f"{folder}/c") == b"false\n"
    yt("set", f"{folder}/a/@mine", "{x=1;y=[a;%false]}")
    assert yt("get", f"{folder}/a/@mine", *TEXT) == b'{"x"=1;"y"=["a";%false;];}\n'
    assert yt("get", f"{folder}/a/@mine", "--format", "json") == b'{"x":1,"y":["a",false]}\n'
    assert yt("get", folder, *TEXT) == b'{"a"={"b"={};};}\n'
    yt("copy", f"{folder}/a", f"{folder}/c")
    yt("move", f"{folder}/c", f"{folder}/d")
    assert yt("find", folder).decode().split() == [
        folder,
        *(f"{folder}/{it}" for it in ("a", "a/b", "d", "d/b")),
    ]
    yt("remove", "-r", f"{folder}/a")
    assert yt("list", folder) == b"d\n"
    answer = yt("execute", "get", f'{{path="{folder}/@count";output_format=json}}')
    assert answer == b'{"value":1}'


def test_a_table_is_an_entity(yt: Run, folder: str) -> None:
    yt("create", "table", f"{folder}/t", "--attributes", ATTRIBUTES)
    assert yt("get", f"{folder}/t", *TEXT).strip() == b"#"
    found = yt("get", f"{folder}/t", "--attribute", "type", *TEXT)
    assert found.strip() == b'<"type"="table";>#'


def test_time_and_atomicity(yt: Run, folder: str) -> None:
    path = f"{folder}/t"
    before, after = int(yt("generate-timestamp")), int(yt("generate-timestamp"))
    assert 0 < before < after
    yt("create", "table", path, "--attributes", ATTRIBUTES[:-1] + ";atomicity=none}")
    yt("mount-table", path, "--sync")
    words = ("insert-rows", path, "--format", "yson")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        yt(*words, "--atomicity", "full", stdin=b"{x=a;y=1}")
    assert b"tomicity" in refused.value.stderr
    yt(*words, "--atomicity", "none", "--durability", "async", stdin=b"{x=a;y=1}")
    assert yt("lookup-rows", path, *TEXT, stdin=b"{x=a}") == b'{"x"="a";"y"=1;};\n'


@pytest.mark.part("YTsaurus's command yt")
def test_errors_end_the_yt_command_with_a_text_and_a_status(yt: Run, folder: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        yt("get", f"{folder}/nothing")
    assert b"There is no table and no directory" in refused.value.stderr
    with pytest.raises(subprocess.CalledProcessError) as refused:
        yt("select-rows", f"* from [{folder}/nothing]", *TEXT)
    assert b"There is no table" in refused.value.stderr
    with pytest.raises(subprocess.CalledProcessError) as refused:
        yt("select-rows", "* from [//t]", "--format", "dsv")
    assert b"A format must be yson or json" in refused.value.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("read-table", "{}/t", "--format", "json"), b"Use select_rows"),
        (("list", "{}", "-l"), b"list without -l"),
    ],
)
def test_an_unsupported_yt_command_names_an_alternative(
    yt: Run, folder: str, words: tuple[str, ...], said: bytes
) -> None:
    yt("create", "table", f"{folder}/t", "--attributes", ATTRIBUTES)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        yt(*(word.format(folder) for word in words))
    assert said in failed.value.stderr
    assert b"KeyError" not in failed.value.stderr
