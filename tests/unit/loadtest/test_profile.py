"""What stacks say of where the time went, and that nothing says where files lie on a machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.spawn import get_executable
from pathlib import Path
from subprocess import PIPE
from typing import Self

import pytest

from dodona_loadtest import bench, profile
from dodona_loadtest.harness.client_process import Order
from dodona_loadtest.harness.measure import Sample
from dodona_loadtest.harness.profilers import Manner, Profiler, Watch, descendants
from dodona_loadtest.harness.row import Contender, Row, Running
from dodona_loadtest.harness.servers import command_of
from dodona_loadtest.harness.stacks import (
    process_name,
    profile_lines,
    read_stacks,
    without_machine,
)
from dodona_loadtest.peers.dodona import TimestampLoad
from dodona_loadtest.profile import FORMS, Look, Seen, write
from dodona_loadtest.rows import ROWS
from suite.programs import program
from suite.waiting import WAIT_S_MAX, wait_until

SVG_BYTES_MAX = 300_000
PLACE = "/srv/somewhere/lib/python3.11/"
LOOP = "main (app.py:1);Runner.run (asyncio/runners.py:86)"
STACKS = "\n".join(
    [
        f"{LOOP};serve (app/io.py:5);send (app/io.py:9) 30",
        f"{LOOP};serve (app/io.py:7);pack (app/core.py:2) 60",
        f"main (app.py:1);Thread.run (threading.py:9);pack ({PLACE}site-packages/app/core.py:3) 10",
        "torn",
    ]
)


def test_shares_are_of_functions_and_of_files() -> None:
    found = read_stacks(STACKS)
    assert found.samples == 100
    assert found.modules == {"app/core.py": 70, "app/io.py": 30}
    assert found.own[("app/core.py", "pack")] == 70
    assert found.with_callees[("app/io.py", "serve")] == 90
    assert ("app.py", "main") not in found.with_callees  # it only starts the loops
    lines = profile_lines(found, 2.0, 100)
    assert lines[0] == "Busy for 50% of the time (100 samples)."
    assert "| app/core.py | 70.0% |" in lines
    assert "| `serve` | app/io.py | 0.0% | 90.0% |" in lines
    assert profile_lines(read_stacks(""), 2.0, 100) == ["It did nothing that was seen."]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"f ({PLACE}asyncio/runners.py:5)", "f (asyncio/runners.py:5)"),
        (f"f ({PLACE}site-packages/a/b.py)", "f (a/b.py)"),
        ("f (/opt/own/place/tool.py:5)", "f (tool.py:5)"),
        ("f (dodona_wire/net/peer.py:5)", "f (dodona_wire/net/peer.py:5)"),
        ('xmlns="http://www.w3.org/2000/svg"></g>', 'xmlns="http://www.w3.org/2000/svg"></g>'),
    ],
)
def test_files_go_by_their_packages_names(text: str, shown: str) -> None:
    assert without_machine(text) == shown


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python -m dodona_local.child dodona_oracle master --port 1", "master"),
        ("python -m dodona_local.child dodona_oracle proxy --port 1", "proxy"),
        ("python -m dodona_tablets --cell 3", "node 3"),
        ("python -m dodona_tablets replica --port 1", "replica"),
        ("python -m dodona_gateway", "gateway"),
        ("postgres", "server"),
        ("python -c from multiprocessing.spawn import spawn_main; spawn_main()", "client"),
        ("python -m pyspark.daemon pyspark.worker", "executor"),
    ],
)
def test_processes_have_the_names_of_their_roles(words: str, name: str) -> None:
    assert process_name(words.split()) == name


def may_look() -> bool:
    """Whether one process may look into another here."""
    command = [str(Path(sys.executable).parent / "py-spy"), "dump", "--pid", str(os.getpid())]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.integration
def test_the_profile_of_an_idle_process_has_no_graph(tmp_path: Path) -> None:
    """As the node of a row of timestamps: py-spy has an error for that."""
    if not may_look():
        pytest.skip("py-spy may not look into processes here")
    with program([sys.executable, "-c", "input()"], stdin=PIPE, stdout=PIPE) as idle:
        wait_until(lambda: "R" not in Path(f"/proc/{idle.pid}/stat").read_text().split()[2])
        for form in FORMS:
            seen = Profiler(idle.pid, Manner(50), form, tmp_path, 1).read()
            assert profile_lines(read_stacks(seen), 1.0, 50) == ["It did nothing that was seen."]
    sample = Sample(1, 0, 1.0, 1.0, 1.0, 1.0)
    asked = Look(ROWS[0], 1, 1.0, Manner(50))
    page = write(asked, Seen(sample, {"node 0": ""}, {"node 0": ""}), tmp_path / "page")
    assert "It did nothing that was seen." in page.read_text()
    assert [it.name for it in page.parent.iterdir()] == [page.name]


def test_a_server_is_recognized_by_its_process_title() -> None:
    code = "from setproctitle import *; setproctitle('python -m dodona_oracle master'); input()"
    with program([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE) as server:
        wait_until(lambda: process_name(command_of(server.pid)) == "master")
    assert command_of(server.pid) == [""]


@pytest.mark.integration
@pytest.mark.alone  # py-spy looks so often only on cores that are free
def test_a_row_s_processes_are_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not may_look():
        pytest.skip("py-spy may not look into processes here")
    # How much of the time a process is busy depends on all else that the machine does.
    monkeypatch.setattr(profile, "BUSY_SHARE_MIN", 0.001)
    words = ["--row", "timestamps", "--callers", "100", "--seconds", "1", "--into", str(tmp_path)]
    assert profile.main(words) == 0, capsys.readouterr().err
    page = (tmp_path / "timestamps-100.md").read_text()
    assert "## Node 0" in page  # which has nothing to do
    for name in ("client", "master", "proxy"):
        graph = tmp_path / f"timestamps-100-{name}.svg"
        assert f"({graph.name})" in page
        text = graph.read_text()
        assert f">timestamps, 100 callers: {name.replace('-', ' ')}<" in text
        assert text.rstrip().endswith("</svg>")
        assert len(text) < SVG_BYTES_MAX
        assert str(Path(sys.prefix).resolve()) not in text
        assert str(Path(__file__).parents[3]) not in text
    assert "operations a second meanwhile" in page
    assert "| dodona_wire/net/" in page


@pytest.mark.integration
@pytest.mark.alone  # py-spy looks so often only on cores that are free
def test_a_study_s_processes_are_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not may_look():
        pytest.skip("py-spy may not look into processes here")
    # How much of the time a process is busy depends on all else that the machine does.
    monkeypatch.setattr(profile, "BUSY_SHARE_MIN", 0.001)
    words = ["--study", "restart", "--scale", "0.02", "--rate", "200", "--into", str(tmp_path)]
    assert profile.main(words) == 0, capsys.readouterr().err
    page = (tmp_path / "restart.md").read_text()
    assert "## Node 0 2\n" in page  # the one that was started after the kill
    for name in ("client", "node 0"):
        graph = tmp_path / f"restart-{name.replace(' ', '-')}.svg"
        assert f"## {name.capitalize()}\n\n[Flame graph]({graph.name})" in page
        text = graph.read_text()
        assert f">restart: {name}<" in text
        assert str(Path(sys.prefix).resolve()) not in text
        assert str(Path(__file__).parents[3]) not in text
    assert "| dodona_tablets/" in page


@pytest.mark.integration
def test_processes_of_before_are_not_looked_at(tmp_path: Path) -> None:
    """Fifteen idle workers of Spark took so many profilers that the study's own came too late."""
    if not may_look():
        pytest.skip("py-spy may not look into processes here")
    with idle_process():
        strangers = descendants()
        with idle_process(), Watch(Manner(20), "raw", tmp_path, strangers) as watch:
            profilers = vars(watch)["_profilers"]
            wait_until(lambda: len(profilers) == 2)  # this process, and its child
        assert profilers.keys().isdisjoint(strangers)


@contextmanager
def idle_process() -> Iterator[None]:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.communicate(timeout=WAIT_S_MAX)


def test_processes_that_did_next_to_nothing_are_only_named(tmp_path: Path) -> None:
    stacks = {"master": "serve (app/io.py:5) 5", "node 0": STACKS, "proxy": ""}
    seen = profile.SeenStory(1.0, stacks, dict.fromkeys(stacks, "<svg></svg>"))
    page = profile.write_story(profile.STUDIES_BY_NAME["restart"], Manner(200), seen, tmp_path)
    text = page.read_text()
    assert "## Node 0\n" in text
    assert text.endswith("\nBusy for less than 3% of the time: master, proxy.\n")
    assert [it.name for it in tmp_path.glob("*.svg")] == ["restart-node-0.svg"]


def test_a_row_is_profiled_on_the_cores_of_its_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And profilers have all cores: they are no part of it."""
    everywhere = os.sched_getaffinity(0)
    seen: dict[str, object] = {}

    @contextmanager
    def start(folder: Path) -> Iterator[Running]:
        seen["servers"] = os.sched_getaffinity(0)
        yield Running(TimestampLoad("http://nowhere"), "1.0")

    class Client:
        pid = os.getpid()

        def __init__(self, load: object, cores: frozenset[int], callers: int) -> None:
            seen["client"] = set(cores)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def measure(self, order: Order) -> Sample:
            return Sample(1, 0, 1.0, 1.0, 1.0, 1.0)

    def record(*_: object) -> dict[str, str]:
        seen["profilers"] = os.sched_getaffinity(0)
        return {}

    monkeypatch.setattr(profile, "ClientProcess", Client)
    monkeypatch.setattr(profile, "_record", record)
    monkeypatch.setattr(profile, "WARM_UP_S", 0.0)
    row = Row("row", "A row", "Fair.", (Contender("Dodona", start),), (1,), (1,), pinning="shared")
    profile.look(profile.Look(row, 1, 1.0, Manner(100)), tmp_path)
    one_core = {min(everywhere)}
    assert seen == {"servers": one_core, "client": one_core, "profilers": everywhere}


def test_one_command_looks_at_every_row_and_study() -> None:
    def chosen(*words: str) -> tuple[list[str], list[str]]:
        return profile.chosen(profile.command_line().parse_args(words))

    rows, studies = chosen("--all")
    assert {*rows, *studies} == set(bench.ITEMS)
    assert chosen() == (rows, [])
    assert chosen("--study", "yson") == ([], ["yson"])
    assert chosen("--row", "commits", "--study", "yson") == (["commits"], ["yson"])


def test_a_missing_profiler_is_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dodona_loadtest.harness.profilers.shutil.which", lambda name: None)
    assert get_executable()  # which starts the client: noted before this test hides it
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert profile.main(["--study", "yson", "--scale", "0.01"]) == 1
    assert "profile: yson: no py-spy: it comes with dodona-loadtest" in capsys.readouterr().err
