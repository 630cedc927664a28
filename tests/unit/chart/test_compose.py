"""The compose file: it is as the generator writes it, and each command, variable, port, path and
name in it is one that the servers, the images and the chart know."""

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
helm = pytest.importorskip("helm_python", reason=NEEDED)

import typer.main  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from documents.blocks import blocks_of  # noqa: E402
from dodona._core.protocol.limits import QueryLimits  # noqa: E402
from dodona_gateway.core.access.grants import parse_grants  # noqa: E402
from dodona_local.cli import application  # noqa: E402
from dodona_oracle.__main__ import ROLES as ORACLE_ROLES  # noqa: E402
from dodona_server.lifecycle import READINESS  # noqa: E402
from dodona_server.serving import GRACE_SECONDS  # noqa: E402
from dodona_server.settings import parse_settings  # noqa: E402
from dodona_wire.net.addresses import is_loopback  # noqa: E402
from dodona_wire.net.cluster_key import ClusterKey  # noqa: E402
from helm_chart import COMPOSE, DOCKER, ROLES, ROOT  # noqa: E402
from helm_chart.compose import PREPARE, TOOLS, compose_text  # noqa: E402
from helm_chart.compose_file import Service, read_compose, text_of  # noqa: E402
from helm_chart.kubelet import entry_point  # noqa: E402
from helm_chart.settings import KINDS  # noqa: E402
from suite.projects import project_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_settings")

FILE: Final = read_compose(COMPOSE)
SERVERS: Final = {name: it for name, it in FILE.services.items() if name not in (PREPARE, TOOLS)}
"""By name, without the two that end."""
SERVER_NAMES: Final = ["master", "proxy", "node-0", "node-1", "gateway"]
MIB: Final = 1 << 20


def settings_of(service: Service) -> Any:
    """As the process itself reads them. Raises SystemExit if it does not take them."""
    kind = KINDS[service.role]
    if service.role in ORACLE_ROLES:
        assert ORACLE_ROLES[service.role][1] is kind
    with pytest.MonkeyPatch.context() as patch:
        for name, value in service.environment.items():
            patch.setenv(name, value)
        return parse_settings(kind, service.name, list(service.command))


def test_the_file_is_as_it_is_generated() -> None:
    assert COMPOSE.read_text() == compose_text(), "run make chart"


def test_there_is_one_service_for_each_process() -> None:
    assert sorted(SERVERS) == sorted(SERVER_NAMES)
    assert {it.role for it in SERVERS.values()} == {*ROLES}
    assert {*FILE.services} - {*SERVERS} == {PREPARE, TOOLS}


@pytest.mark.parametrize("name", SERVER_NAMES)
def test_a_server_accepts_its_command_and_is_closed(name: str) -> None:
    settings = settings_of(SERVERS[name])
    assert not settings.insecure
    assert not is_loopback(settings.host), "others in the network reach it"
    assert settings.cluster_key_file == Path("/etc/dodona/cluster-key/key")


@pytest.mark.parametrize("name", SERVER_NAMES)
def test_every_variable_is_a_setting(name: str) -> None:
    service = SERVERS[name]
    fields = KINDS[service.role].model_fields
    known = {f"DODONA_{service.role.upper()}_{it.upper()}" for it in fields}
    assert service.environment.keys() <= known


@pytest.mark.parametrize("name", SERVER_NAMES)
def test_urls_name_services_and_their_ports(name: str) -> None:
    settings = settings_of(SERVERS[name])
    master = settings_of(SERVERS["master"])
    if name == "master":
        return
    assert settings.master_url == f"http://master:{master.port}"
    own = "127.0.0.1" if name == "gateway" else name
    assert settings.address == f"http://{own}:{settings.port}"


@pytest.mark.parametrize("name", SERVER_NAMES)
def test_a_port_is_that_of_the_image_and_of_the_health_check(name: str) -> None:
    service = SERVERS[name]
    settings = settings_of(service)
    dockerfile = (DOCKER / f"{service.role}.Dockerfile").read_text()
    assert re.findall(r"^EXPOSE (\d+)$", dockerfile, re.MULTILINE) == [str(settings.port)]
    python, *_, code = service.health[1:]
    assert (service.health[0], python) == ("CMD", entry_point(service.role)[0])
    assert f"HTTPConnection('127.0.0.1', {settings.port})" in code
    assert f"'{READINESS}'" in code
    compile(code, name, "exec")


def test_only_the_gateway_can_be_reached_and_only_from_this_machine() -> None:
    published = {name: it.raw["ports"] for name, it in FILE.services.items() if "ports" in it.raw}
    assert published == {"gateway": ["127.0.0.1:${DODONA_PORT:-8502}:8502"]}
    assert not [name for name, it in FILE.services.items() if it.raw.get("network_mode") == "host"]
    moved = read_compose(COMPOSE, {"DODONA_PORT": "9000"}).services["gateway"]
    assert settings_of(moved).address == "http://127.0.0.1:9000"


def test_each_node_has_a_cell_and_a_volume_of_its_own() -> None:
    nodes = [SERVERS["node-0"], SERVERS["node-1"]]
    assert [settings_of(it).cell for it in nodes] == [0, 1]
    assert [it.mounts["/data"] for it in nodes] == ["node-0-data", "node-1-data"]
    assert SERVERS["master"].mounts["/data"] == "master-data"


@pytest.mark.parametrize("name", SERVER_NAMES)
def test_paths_are_in_volumes(name: str) -> None:
    settings = settings_of(SERVERS[name])
    mounts = SERVERS[name].mounts
    files = [getattr(settings, it, None) for it in ("cluster_key_file", "first_token_file")]
    for path in (it for it in files if it is not None):
        assert str(path.parent) in mounts
    if name != "proxy" and name != "gateway":
        assert str(settings.data_dir.parent) == "/data"
        assert "/data" in mounts
    assert SERVERS[name].written == {
        it for it in mounts if it in ("/data", "/etc/dodona/first-token")
    }


def test_all_volumes_are_declared_and_prepared() -> None:
    named = {source for it in FILE.services.values() for source in it.mounts.values()}
    prepared = FILE.services[PREPARE].mounts
    assert {*FILE.volumes} == named == {*prepared.values()}
    assert all(place == f"/volumes/{source}" for place, source in prepared.items())


@pytest.mark.parametrize("name", FILE.services)
def test_a_container_has_no_more_rights_than_it_needs(name: str) -> None:
    raw = FILE.services[name].raw
    assert raw["read_only"] is True
    assert raw["cap_drop"] == ["ALL"]
    assert raw["security_opt"] == ["no-new-privileges:true"]
    assert "max-size" in raw["logging"]["options"], "a log has an end"
    if name == PREPARE:
        assert (raw["user"], raw["cap_add"], raw["network_mode"]) == ("0:0", ["CHOWN"], "none")
    else:
        assert raw["user"] == "65532:65532"
        assert "cap_add" not in raw
        assert raw["depends_on"][PREPARE] == {"condition": "service_completed_successfully"}
    text = (DOCKER / f"{FILE.services[name].role}.Dockerfile").read_text()
    assert "USER 65532:65532" in text


@pytest.mark.parametrize("name", [*SERVER_NAMES, TOOLS])
def test_a_signal_to_end_arrives_from_the_first_moment_on(name: str) -> None:
    """Linux gives the first process of a container no signal that it does not listen for. While a
    server is imported it listens for none, so Docker would wait all of the time to end."""
    raw = FILE.services[name].raw
    assert raw["init"] is True
    assert raw["restart"] == ("no" if name == TOOLS else "unless-stopped")


def test_nothing_is_asked_of_docker_that_it_may_not_give() -> None:
    """A server itself raises its limit of open files to what Docker allows. More than that stops
    all containers."""
    assert not [name for name, it in FILE.services.items() if "ulimits" in it.raw]
    code = (
        "import resource as it; it.setrlimit(it.RLIMIT_NOFILE, (128, 256)); "
        "from dodona_server.process import prepare_process; prepare_process(); "
        "print(it.getrlimit(it.RLIMIT_NOFILE))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.strip() == "(256, 256)"


def test_a_service_ends_before_those_that_it_needs() -> None:
    """Compose ends them in the opposite order of their start, and waits for no readiness."""
    behind = {
        name: {it for it in raw["depends_on"] if it != PREPARE}
        for name, raw in ((name, it.raw) for name, it in FILE.services.items())
        if "depends_on" in raw
    }
    nodes = {"node-0": {"master"}, "node-1": {"master"}}
    others = {"gateway": {"master", "proxy", *nodes}, "master": set(), TOOLS: set()}
    assert behind == {"proxy": {"master"}, **nodes, **others}
    for name, needed in behind.items():
        for it in needed:
            condition = FILE.services[name].raw["depends_on"][it]
            assert condition == {"condition": "service_started"}


def test_each_image_is_built_once_from_its_dockerfile() -> None:
    built = [it for it in FILE.services.values() if "build" in it.raw]
    assert sorted(it.role for it in built) == sorted({it.role for it in FILE.services.values()})
    for service in built:
        build = service.raw["build"]
        assert (COMPOSE.parent / build["context"]).resolve() == ROOT
        assert ROOT / build["dockerfile"] == DOCKER / f"{service.role}.Dockerfile"
        assert (ROOT / build["dockerfile"]).is_file()


@pytest.mark.parametrize("name", FILE.services)
def test_an_image_is_of_this_version_and_never_pulled(name: str) -> None:
    service = FILE.services[name]
    version = project_of("dodona-server")["version"]
    assert service.raw["image"] == f"dodona-{service.role}:{version}"
    assert "build" in service.raw or service.raw["pull_policy"] == "never"


@pytest.mark.parametrize("name", SERVER_NAMES)
def test_a_server_has_time_to_end(name: str) -> None:
    settings = settings_of(SERVERS[name])
    spent_s = (settings.drain_ms + settings.finish_ms_max) / 1000 + GRACE_SECONDS
    assert int(SERVERS[name].raw["stop_grace_period"].removesuffix("s")) >= spent_s + 10


def test_memory_limits_cover_the_memory_that_settings_allow() -> None:
    node, gateway = (settings_of(SERVERS[it]) for it in ("node-0", "gateway"))
    query_mib = 3 * QueryLimits().memory_mib_max
    needed_mib = {
        "node-0": node.memory_mib_max + 3 * node.batch_mib_max,
        "gateway": gateway.bodies_mib_max
        + gateway.answers_mib_max
        + gateway.headers_mib_max
        + gateway.transactions_mib_max
        + gateway.query_count_max * query_mib,
        TOOLS: query_mib,
    }
    for name, mib in needed_mib.items():
        limit = FILE.services[name].raw["mem_limit"]
        assert limit[-1] == "g"
        assert int(limit[:-1]) * 1024 >= mib + 512, "the program itself takes some, too"


def test_the_preparation_makes_the_key_once_and_gives_all_volumes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, int, int]] = []

    def chown(path: Path, user: int, group: int) -> None:
        given.append((str(path.relative_to(tmp_path)), user, group))

    service = FILE.services[PREPARE]
    python, isolated, flag, code = service.entrypoint
    assert (python, isolated, flag) == (entry_point("master")[0], "-I", "-c")
    for volume in FILE.volumes:
        (tmp_path / volume).mkdir()
    words = [it.replace("/volumes", str(tmp_path)) for it in service.command]
    monkeypatch.setattr(os, "chown", chown)
    monkeypatch.setattr(sys, "argv", ["-c", *words])
    exec(code, {})
    key_file = tmp_path / "cluster-key" / "key"
    assert given.pop(0) == ("cluster-key", os.getuid(), os.getgid()), "else root may not write"
    ClusterKey.read(key_file)
    first = key_file.read_text()
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert given == [(it, 65532, 65532) for it in ("cluster-key/key", *sorted(FILE.volumes))]
    exec(code, {})
    assert key_file.read_text() == first
    assert len(given) == 2 * (1 + len(FILE.volumes)) + 1


def test_the_tools_run_the_command_line_with_the_key(tmp_path: Path) -> None:
    service = FILE.services[TOOLS]
    assert service.environment == {"DODONA_URL": "http://master:8500"}
    shell, flag, script, name = service.entrypoint
    assert (shell, flag, name) == ("/bin/sh", "-c", "dodona")
    (file,) = re.findall(r"cat (\S+)\)", script)
    assert str(Path(file).parent) in service.mounts
    assert entry_point(TOOLS) == script.partition("exec ")[2].split()[:4]
    assert script.endswith(' "$@"')
    outcome = CliRunner().invoke(application, [*service.command, "--help"])
    assert outcome.exit_code == 0


def test_interpolation_is_as_compose_does_it() -> None:
    assert text_of("a${X:-8502}b$$c", {}) == "a8502b$c"
    assert text_of("a${X:-8502}b", {"X": "1"}) == "a1b"
    with pytest.raises(ValueError, match="no value"):
        text_of("${X}", {})


# ---- the page


PAGE: Final = "docs/how-to/run-with-compose.md"
SUBCOMMANDS: Final = {"build", "down", "exec", "logs", "ps", "run", "stop", "up"}


def lines_of_page(beginning: str) -> list[list[str]]:
    """The words of each line that is typed and has these."""
    text = "".join(it.text for it in blocks_of(PAGE) if it.language == "sh")
    lines = [shlex.split(it.replace("$(", " ").replace(")", "")) for it in text.splitlines()]
    words = beginning.split()
    found = [line[line.index(words[0]) :] for line in lines if words[0] in line]
    return [it for it in found if it[: len(words)] == words]


def test_the_page_names_the_file_and_the_port_of_the_gateway() -> None:
    text = (ROOT / PAGE).read_text()
    assert f"COMPOSE_FILE={COMPOSE.relative_to(ROOT)}\n" in text
    port = SERVERS["gateway"].raw["ports"][0].rpartition(":")[2]
    assert {*re.findall(r"127\.0\.0\.1:(\d+)", text)} == {port}
    typed = "".join(it.text for it in blocks_of(PAGE) if it.language == "sh")
    addresses = {*re.findall(r"127\.0\.0\.1:([^/]+)/", typed)}
    assert addresses == {f"${{DODONA_PORT:-{port}}}"}
    assert "DODONA_PORT=" in text


def test_the_page_says_how_much_memory_the_containers_may_take() -> None:
    limits = {name: it.raw["mem_limit"] for name, it in FILE.services.items() if name != PREPARE}
    mib = {name: int(it[:-1]) * {"m": 1, "g": 1024}[it[-1]] for name, it in limits.items()}
    servers_gib = sum(mib[it] for it in SERVERS) / 1024
    said = f"add up to {servers_gib} GiB, and to {servers_gib + mib[TOOLS] / 1024} GiB"
    assert said in " ".join((ROOT / PAGE).read_text().split())


def test_the_page_s_program_runs_in_the_image_of_the_tools_and_in_the_network() -> None:
    (line,) = lines_of_page("docker run")
    raw = FILE.services[TOOLS].raw
    image = line.index(raw["image"])
    options = dict(zip(line[3:image:2], line[4:image:2], strict=True))
    name = helm.values_from_yaml(COMPOSE.read_text())["name"]
    assert options["--network"] == f"{name}_default"
    assert options["--env"] == "DODONA_CLUSTER_KEY"
    assert (options["--entrypoint"], line[image + 1]) == ("python", "/work/program.py")
    assert "ENV PATH=/opt/dodona/bin:$PATH" in (DOCKER / f"{TOOLS}.Dockerfile").read_text()
    (text,) = [it.text for it in blocks_of(PAGE) if "program.py << 'END'" in it.text]
    program = text.partition("'END'\n")[2].partition("END\n")[0]
    compile(program, "program.py", "exec")
    (url,) = re.findall(r'connect\("(.*?)"\)', program)
    assert url == raw["environment"]["DODONA_URL"]


def test_the_page_waits_only_if_the_cluster_starts_and_shows_what_does_not_run() -> None:
    text = " ".join(it.text for it in blocks_of(PAGE) if it.language == "sh")
    assert re.search(r"docker compose up --detach &&\s+curl ", text), "else it waits for nothing"
    shown = lines_of_page("docker compose ps")
    assert shown
    assert all("--all" in it for it in shown), "others are not listed: they were only created"


def test_the_page_s_rows_fit_its_table() -> None:
    (text,) = [it.text for it in blocks_of(PAGE) if "> orders.csv" in it.text]
    (made,) = re.findall(r"printf '(.*)' > orders.csv", text)
    header, *rows = made.replace("\\n", "\n").splitlines()
    (schema,) = re.findall(r"--schema '(.*)'", text)
    assert header.split(",") == [it.partition(":")[0] for it in schema.split(",")]
    assert rows
    assert {it.count(",") for it in rows} == {header.count(",")}


def test_the_page_builds_the_tools_with_the_servers() -> None:
    """`build` leaves out services with a profile that is not named."""
    builds = [it for it in lines_of_page("docker compose") if "build" in it or "--build" in it]
    assert len(builds) == 2
    assert all(it == ["docker", "compose", "--profile", TOOLS, "build"] for it in builds)


def test_the_page_s_docker_commands_name_services_and_files_of_theirs() -> None:
    lines = [it[4:] if it[2] == "--profile" else it[2:] for it in lines_of_page("docker compose")]
    assert {it[0] for it in lines} == SUBCOMMANDS
    for subcommand, *words in lines:
        named = [it for it in words if not it.startswith("-")]
        if subcommand == "exec":
            service, program, path = named
            assert program == "cat"
            assert str(Path(path).parent) in FILE.services[service].mounts
        if subcommand == "logs":
            assert named[-1] in SERVERS


@pytest.mark.parametrize(
    "words", [it[it.index(TOOLS) + 1 :] for it in lines_of_page("docker compose run")]
)
def test_the_page_s_commands_are_taken_by_dodona(words: list[str]) -> None:
    if words[0] == "-C":  # of tar, to take a backup away or to bring it back
        assert words[1] in FILE.services[TOOLS].mounts
        return
    typed = words[: words.index("<")] if "<" in words else words
    command: Any = typer.main.get_command(application)
    while hasattr(command, "commands"):
        command = command.commands[typed.pop(0)]
    context = command.make_context("dodona", typed)
    if "grant" in context.params:
        parse_grants(context.params["grant"])


def test_the_page_s_other_settings_are_settings_with_enough_memory() -> None:
    (block,) = [it for it in blocks_of(PAGE) if it.language == "yaml"]
    for name, changed in helm.values_from_yaml(block.text)["services"].items():
        raw = FILE.services[name].raw
        environment = {**raw["environment"], **changed["environment"]}
        assert environment != raw["environment"]
        settings = settings_of(Service(name, {**raw, "environment": environment}, {}))
        needed_mib = settings.memory_mib_max + 3 * settings.batch_mib_max + 512
        assert int(changed["mem_limit"].removesuffix("g")) * 1024 >= needed_mib
