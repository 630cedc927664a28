"""docs/how-to/run-on-machines.md: what its units run is what the servers take, as the servers' own
settings read it, and what they say of starts and ends fits."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from documents.blocks import DOCS, blocks_of
from documents.settings_page import PROCESSES
from documents.units import UNITS, command_of, files_of, option, options_of, seconds, units_of
from dodona_gateway.core.access.grants import parse_grants
from dodona_gateway.shell.settings import GatewaySettings
from dodona_local.cli import application
from dodona_oracle.shell.settings import MasterSettings, ProxySettings
from dodona_server.settings import USAGE_STATUS, ProcessSettings, parse_settings
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.net.addresses import is_loopback

pytestmark = pytest.mark.usefixtures("without_settings")

PAGE: Final = "docs/how-to/run-on-machines.md"
FILES: Final = files_of(PAGE)
SERVERS: Final[dict[str, type[ProcessSettings]]] = {
    "dodona-master.service": MasterSettings,
    "dodona-proxy.service": ProxySettings,
    "dodona-node@.service": NodeSettings,
    "dodona-gateway.service": GatewaySettings,
}
OWN_VARIABLES: Final = {"ADDRESS", "MASTER", "PORT"}
LEFT_S: Final = 30
"""What a server gets beyond its own bounds, says the page on stopping."""


def settings_of(unit: str, instance: str = "") -> Any:
    """As the process itself reads them. Raises SystemExit if it does not take them."""
    command = command_of(FILES, unit, instance)
    arguments, kind = list(command.arguments), SERVERS[unit]
    started = f"python -m {command.module}"
    if command.module == "dodona_oracle":
        started += f" {arguments.pop(0)}"
    assert PROCESSES[started] is kind
    with pytest.MonkeyPatch.context() as patch:
        for name, value in command.environment.items():
            patch.setenv(name, value)
        return parse_settings(kind, started, arguments)


def shell_lines() -> list[str]:
    text = "".join(it.text for it in blocks_of(PAGE) if it.language == "sh")
    return text.splitlines()


def test_all_servers_have_a_unit() -> None:
    assert {*units_of(FILES)} == {*SERVERS, "dodona-backup.service"}


@pytest.mark.parametrize("unit", SERVERS)
def test_a_server_accepts_the_settings_of_its_unit(unit: str) -> None:
    settings = settings_of(unit, "0")
    assert not settings.insecure
    assert not is_loopback(settings.host)
    assert settings.cluster_key_file == Path("/etc/dodona/key")
    if unit != "dodona-master.service":
        assert settings.master_url == "http://10.0.0.1:8500"
        assert settings.address == f"http://10.0.0.2:{settings.port}"


@pytest.mark.parametrize("unit", SERVERS)
@pytest.mark.parametrize("instance", ["0", "2"])
def test_every_variable_is_a_setting_or_the_units_own(unit: str, instance: str) -> None:
    """Pydantic overlooks those that are none."""
    prefix = SERVERS[unit].model_config.get("env_prefix", "")
    known = {f"{prefix}{name.upper()}" for name in SERVERS[unit].model_fields}
    assert command_of(FILES, unit, instance).environment.keys() <= known | OWN_VARIABLES


def test_each_cell_has_its_own_number_port_and_folder() -> None:
    first, second = (
        settings_of("dodona-node@.service", "0"),
        settings_of("dodona-node@.service", "2"),
    )
    assert (first.cell, second.cell) == (0, 2)
    assert (first.port, second.port) == (8503, 8504)
    assert second.memory_mib_max == 6144
    assert {str(first.data_dir), str(second.data_dir)} == {
        "/var/lib/dodona/node-0",
        "/var/lib/dodona/node-2",
    }


def test_no_two_processes_of_a_machine_have_one_port() -> None:
    ports = {settings_of(it, "0").port for it in SERVERS}
    assert ports == {8500, 8501, 8502, 8503}
    said = re.findall(r"^\| (85\d\d) \|", (DOCS.parent / PAGE).read_text(), re.MULTILINE)
    assert {int(it) for it in said} == ports


@pytest.mark.parametrize("unit", SERVERS)
def test_the_stop_timeout_of_a_unit_exceeds_the_shutdown_time_of_the_server(unit: str) -> None:
    settings = settings_of(unit, "0")
    spent_s = (settings.drain_ms + settings.finish_ms_max) / 1000
    given = option(FILES, unit, "TimeoutStopSec")
    assert given is not None
    assert seconds(given) == spent_s + LEFT_S


@pytest.mark.parametrize("unit", SERVERS)
def test_a_failed_server_is_restarted_except_after_a_settings_error(unit: str) -> None:
    found = dict(options_of(FILES, unit))
    assert found["Restart"] == "on-failure"
    assert found["RestartPreventExitStatus"] == str(USAGE_STATUS)
    assert found["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize("unit", SERVERS)
def test_the_data_folder_of_a_server_is_in_its_state_directory(unit: str) -> None:
    state = option(FILES, unit, "StateDirectory")
    folder = getattr(settings_of(unit, "0"), "data_dir", None)
    assert (state is None) == (folder is None)
    if folder is not None:
        assert folder.parent == Path("/var/lib") / str(state)
        assert option(FILES, unit, "RequiresMountsFor") == str(folder.parent)


def test_a_backup_is_a_command_that_there_is(tmp_path: Path) -> None:
    """A shell runs the line, with a `dodona` that only says what it was given."""
    shell, flag, script = command_of(FILES, "dodona-backup.service").words
    assert (shell, flag) == ("/bin/sh", "-c")
    said = tmp_path / "dodona"
    said.write_text('#!/bin/sh\necho "$DODONA_URL $DODONA_CLUSTER_KEY $*"\n')
    said.chmod(0o755)
    (tmp_path / "key").write_text("the-key-of-a-cluster\n")
    script = script.replace("/opt/dodona/bin/dodona", str(said))
    script = script.replace("/etc/dodona/key", str(tmp_path / "key"))
    printed = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    url, key, *words = printed.split()
    assert (url, key) == ("http://10.0.0.1:8500", "the-key-of-a-cluster")
    assert words[0] == "backup"
    (folder,) = words[1:]
    assert re.fullmatch(r"/var/backups/dodona/\d{4}-\d\d-\d\d-\d{6}", folder)
    assert option(FILES, "dodona-backup.service", "ReadWritePaths") == str(Path(folder).parent)


@pytest.mark.parametrize("line", [it for it in shell_lines() if "/bin/dodona " in it])
def test_dodona_takes_it(line: str) -> None:
    words = shlex.split(line.partition("/bin/dodona ")[2])
    command: Any = typer.main.get_command(application)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    context = command.make_context("dodona", words)
    if "grant" in context.params:
        parse_grants(context.params["grant"])


def test_systemctl_commands_name_only_existing_units() -> None:
    known = {it.removeprefix(UNITS) for it in FILES if it.startswith(UNITS)}
    lines = [it for it in shell_lines() if it.startswith(("systemctl", "journalctl"))]
    named = [it for line in lines for it in re.findall(r"\bdodona-[\w@.]+", line)]
    assert len(named) > 8
    for name in named:
        unit = re.sub(r"@\d+", "@", name)
        assert unit in known or f"{unit}.service" in known, name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_knows_every_option(tmp_path: Path) -> None:
    paths = []
    for path, text in FILES.items():
        if path.startswith(UNITS):
            paths.append(tmp_path / path.removeprefix(UNITS))
            paths[-1].write_text(text.replace("/opt/dodona/bin/python", sys.executable))
    ended = subprocess.run(
        ["systemd-analyze", "verify", *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    ours = [it for it in ended.stderr.splitlines() if "dodona" in it]
    assert (ended.returncode, ours) == (0, [])
