"""What the chart's containers run is what the servers take: each command and each variable is read
by the real settings, as a kubelet would hand them over."""

import functools
import re
import runpy
import shlex
from typing import Any, Final, NamedTuple

import pytest

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
pytest.importorskip("helm_python", reason=NEEDED)

from typer.testing import CliRunner  # noqa: E402

from dodona._core.protocol.limits import QueryLimits  # noqa: E402
from dodona.errors import InvalidRequest  # noqa: E402
from dodona_gateway.shell.service import gateway_number  # noqa: E402
from dodona_gateway.shell.settings import GatewaySettings  # noqa: E402
from dodona_local.cli import application  # noqa: E402
from dodona_oracle.__main__ import ROLES as ORACLE_ROLES  # noqa: E402
from dodona_server.lifecycle import HEALTH, READINESS, STARTUP  # noqa: E402
from dodona_server.serving import GRACE_SECONDS  # noqa: E402
from dodona_server.settings import ProcessSettings, parse_settings  # noqa: E402
from dodona_tablets.shell.settings import NodeSettings  # noqa: E402
from dodona_wire.net.addresses import is_loopback  # noqa: E402
from helm_chart import CHART, ROLES  # noqa: E402
from helm_chart.combinations import COMBINATIONS  # noqa: E402
from helm_chart.kubelet import Command, Pod, command_of  # noqa: E402
from helm_chart.rendering import (  # noqa: E402
    NAME,
    NAMESPACE,
    Object,
    Rendered,
    container_of,
    pod_owners,
    pod_template,
    render,
)
from helm_chart.settings import KINDS  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_settings")

CLIENT_VARIABLES: Final = {"DODONA_URL", "DODONA_CLUSTER_KEY"}
SECRET: Final = "the-key-that-a-secret-has"
MIB: Final = 1 << 20
QUERY_BYTES_MAX: Final = 3 * QueryLimits().memory_mib_max * MIB
"""What is read, what DuckDB computes with, and what comes of it: each has that bound."""


class AnyKey(dict[tuple[str, str], str]):
    def __missing__(self, wanted: tuple[str, str]) -> str:
        return SECRET


def role_of(owner: Object) -> str:
    role: str = pod_template(owner)["metadata"]["labels"]["app.kubernetes.io/component"]
    return role


def command(owner: Object, pod: Pod | None = None) -> Command:
    container = container_of(owner)
    address = "2001:db8::7" if "--host=::" in container.get("args", []) else "10.1.2.3"
    pod = pod or Pod(f"{owner['metadata']['name']}-1", address, 1)
    return command_of(container, pod, AnyKey())


def settings_of(owner: Object, pod: Pod | None = None) -> Any:
    """As the process itself reads them. Raises SystemExit if it does not take them."""
    run = command(owner, pod)
    arguments = list(run.arguments)
    kinds: dict[str, type[ProcessSettings]] = {
        "dodona_tablets": NodeSettings,
        "dodona_gateway": GatewaySettings,
    }
    if run.module == "dodona_oracle":
        kind: type[ProcessSettings] = ORACLE_ROLES[arguments.pop(0)][1]
    else:
        kind = kinds[run.module]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in run.environment.items():
            patch.setenv(name, value)
        return parse_settings(kind, run.module, arguments)


def servers(found: Rendered) -> list[Object]:
    return [it for it in pod_owners(found) if role_of(it) in ROLES]


class Case(NamedTuple):
    """One set of values, and what the servers read of it."""

    rendered: Rendered
    settings: dict[str, Any]
    """By role."""


@functools.cache
def case(name: str) -> Case:
    found = render(COMBINATIONS[name])
    return Case(found, {role_of(it): settings_of(it) for it in servers(found)})


@pytest.fixture(params=COMBINATIONS)
def each(request: pytest.FixtureRequest) -> Case:
    return case(request.param)


def test_every_server_accepts_the_command_of_its_container(each: Case) -> None:
    assert sorted(each.settings) == sorted(ROLES)
    for role, settings in each.settings.items():
        assert type(settings).__name__ == KINDS[role].__name__
        assert not settings.insecure
        assert not is_loopback(settings.host)
        assert settings.cluster_key_file is not None


def test_every_variable_is_a_setting(each: Case) -> None:
    """Pydantic overlooks those that are none."""
    for owner in pod_owners(each.rendered):
        role = role_of(owner)
        known = CLIENT_VARIABLES
        if role in KINDS:
            known = {f"DODONA_{role.upper()}_{name.upper()}" for name in KINDS[role].model_fields}
        ours = {name for name in command(owner).environment if name.startswith("DODONA_")}
        assert ours <= known


def test_files_are_where_their_arguments_say(each: Case) -> None:
    for owner in pod_owners(each.rendered):
        spec = pod_template(owner)["spec"]
        folders = [it["mountPath"] for it in container_of(owner)["volumeMounts"]]
        for word in command(owner).words[1:]:
            path = word.rpartition("=")[2]
            if path.startswith("/") and not path.startswith(("/opt/", "//")):
                (folder,) = [it for it in folders if path.startswith(f"{it}/")]
                files = files_in(spec, container_of(owner), folder)
                assert files is None or path.removeprefix(f"{folder}/") in files


def files_in(spec: Object, container: Object, folder: str) -> set[str] | None:
    """What a Secret puts there; None of other volumes."""
    (name,) = [it["name"] for it in container["volumeMounts"] if it["mountPath"] == folder]
    for volume in spec["volumes"]:
        if volume["name"] == name and "secret" in volume:
            items = volume["secret"].get("items")
            # Of type kubernetes.io/tls.
            return {it["path"] for it in items} if items else {"tls.crt", "tls.key"}
    return None


@pytest.mark.parametrize("index", [0, 7, 11])
def test_a_pod_hosts_the_cell_of_its_number_at_its_own_name(index: int) -> None:
    owner = render().find("StatefulSet", "-node")
    settings = settings_of(owner, Pod(f"{NAME}-dodona-node-{index}", "10.1.2.3", index))
    assert settings.cell == index
    name = f"{NAME}-dodona-node-{index}.{NAME}-dodona-node.{NAMESPACE}.svc"
    assert settings.address == f"http://{name}:8502"
    service = render().find("Service", "-node")
    assert service["spec"]["ports"][0]["port"] == 8502


def test_a_node_pod_without_its_number_does_not_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    owner = render().find("StatefulSet", "-node")
    with pytest.raises(SystemExit):
        settings_of(owner, Pod("node-0", "10.1.2.3", ordinal=None))
    assert "cell: Input should be a valid integer" in capsys.readouterr().err


def test_the_urls_of_pods_name_services_and_their_ports(each: Case) -> None:
    services = {
        f"{it['metadata']['name']}.{NAMESPACE}.svc": it["spec"]["ports"][0]["port"]
        for it in each.rendered.of_kind("Service")
    }
    for owner in pod_owners(each.rendered):
        role = role_of(owner)
        found = command(owner)
        urls = [found.environment.get("DODONA_URL", "")]
        if role in KINDS:
            settings = each.settings[role]
            assert settings.port == container_of(owner)["ports"][0]["containerPort"]
            urls = [getattr(settings, "master_url", "")]
            if role == "proxy":
                urls.append(settings.address)
        for url in filter(None, urls):
            host, _, port = url.removeprefix("http://").partition(":")
            assert services[host] == int(port)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("defaults", "http://10.1.2.3:8502"),
        ("gateway for all", "https://10.1.2.3:8502"),
        ("IPv6", "http://[2001:db8::7]:8502"),
    ],
)
def test_each_gateway_reports_its_own_address(name: str, url: str) -> None:
    settings = case(name).settings["gateway"]
    assert settings.address == url
    owner = render().find("Deployment", "-gateway")
    other = settings_of(owner, Pod("other", "10.1.2.4"))
    assert gateway_number(settings) != gateway_number(other)


def test_gateways_get_the_files_that_the_values_name() -> None:
    settings = case("gateway for all").settings["gateway"]
    given = ("first_token_file", "tls_certificate", "tls_key", "audit_log", "metrics_key_file")
    assert all(getattr(settings, name) is not None for name in given)
    plain = case("defaults").settings["gateway"]
    assert not any(getattr(plain, name) for name in given)


@pytest.mark.parametrize(
    ("size_limit", "mib_max"), [("1Gi", 256), ("4Mi", 1), ("7Mi", 1), ("2Ti", 524_288)]
)
def test_the_audit_log_is_rotated_long_before_its_volume_is_full(
    size_limit: str, mib_max: int
) -> None:
    """Kubernetes ends a pod whose volume is over its limit, whatever the budget of disruptions."""
    audit = {"enabled": True, "sizeLimit": size_limit}
    owner = render({"gateway": {"audit": audit}}).find("Deployment", "-gateway")
    settings = settings_of(owner)
    assert settings.audit_mib_max == mib_max
    (volume,) = [it for it in pod_template(owner)["spec"]["volumes"] if it["name"] == "audit"]
    assert volume["emptyDir"] == {"sizeLimit": size_limit}
    assert 2 * settings.audit_bytes_max <= bytes_of(size_limit) / 2


def test_settings_of_values_are_those_of_the_process() -> None:
    settings = case("settings").settings
    assert settings["master"].window_ms == 800
    assert settings["node"].transaction_bytes_max == 123_456_789_012
    assert [settings[it].log_level for it in ROLES] == ["debug", "debug", "warning", "debug"]
    traced = case("watched").settings["node"]
    assert (traced.trace_url, traced.trace_ratio) == (
        "http://collector.observability:4318/v1/traces",
        0.25,
    )


def test_probes_ask_for_pages_that_there_are(each: Case) -> None:
    for owner in servers(each.rendered):
        container = container_of(owner)
        has_tls = getattr(each.settings[role_of(owner)], "tls_certificate", None) is not None
        for probe, page in (("startup", STARTUP), ("readiness", READINESS), ("liveness", HEALTH)):
            asked = container[f"{probe}Probe"]["httpGet"]
            port = container["ports"][0]["name"]
            assert asked == {"path": page, "port": port, "scheme": "HTTPS" if has_tls else "HTTP"}


def test_the_startup_probe_gives_a_master_600_s_and_a_node_3600_s() -> None:
    for role, seconds in (("master", 600), ("node", 3600)):
        probe = container_of(render().find("StatefulSet", f"-{role}"))["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] == seconds


def test_the_grace_period_of_a_pod_covers_the_shutdown_of_its_server(each: Case) -> None:
    for owner in servers(each.rendered):
        settings = each.settings[role_of(owner)]
        spent_s = (settings.drain_ms + settings.finish_ms_max) / 1000 + GRACE_SECONDS
        assert spent_s + 10 <= pod_template(owner)["spec"]["terminationGracePeriodSeconds"]


def test_balancers_have_time_to_notice_an_end() -> None:
    for role in ("proxy", "gateway"):
        owner = render().find("Deployment", f"-{role}")
        probe = container_of(owner)["readinessProbe"]
        assert case("defaults").settings[role].drain_ms >= 1000 * probe["periodSeconds"]


def bytes_of(quantity: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMGT]i)", quantity).groups()  # type: ignore[union-attr]
    return int(number) << {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[unit]


def test_memory_limits_cover_the_memory_that_settings_allow() -> None:
    found, settings = case("defaults")
    node, gateway = settings["node"], settings["gateway"]
    needed = {
        "-node": (node.memory_mib_max + 3 * node.batch_mib_max) * MIB,
        "-gateway": (
            gateway.bodies_mib_max
            + gateway.answers_mib_max
            + gateway.headers_mib_max
            + gateway.transactions_mib_max
        )
        * MIB
        + gateway.query_count_max * QUERY_BYTES_MAX,
        "-tools": QUERY_BYTES_MAX,
    }
    for name, size_bytes in needed.items():
        (owner,) = [it for it in pod_owners(found) if it["metadata"]["name"].endswith(name)]
        limit = bytes_of(container_of(owner)["resources"]["limits"]["memory"])
        assert limit >= size_bytes + 512 * MIB, "the program itself takes some, too"


def test_a_volume_has_room_for_the_log_and_as_much_for_chunks() -> None:
    for role, factor in (("master", 1), ("node", 2)):
        owner = render().find("StatefulSet", f"-{role}")
        (claim,) = owner["spec"]["volumeClaimTemplates"]
        size_bytes = bytes_of(claim["spec"]["resources"]["requests"]["storage"])
        assert size_bytes >= factor * case("defaults").settings[role].map_mib_max * MIB


# ---- commands


def test_backups_are_a_command_that_there_is() -> None:
    owner = render(COMBINATIONS["backups"]).find("CronJob", "-backup")
    run = command(owner, Pod("backup-29-x7", "10.1.2.3"))
    assert run.module == "dodona_local.cli"
    words = list(run.arguments)
    assert words == ["backup", "/backup/backup-29-x7", "//home/bank", "//home/with space"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DODONA_URL", "ftp://nowhere")
        patch.setenv("DODONA_CLUSTER_KEY", run.environment["DODONA_CLUSTER_KEY"])
        outcome = CliRunner().invoke(application, words)
    assert (outcome.exit_code, "ftp" in outcome.stderr) == (1, True), "all else was understood"


def test_the_check_pod_runs_its_script_with_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = render().find("Pod", "-check")
    run = command(owner)
    python, flag, script, *arguments = run.words
    assert (python, flag, script) == ("/opt/dodona/bin/python", "-I", "/check/check.py")
    configured = render().find("ConfigMap", "-check")["data"]["check.py"]
    assert configured.strip() == (CHART / "files" / "check.py").read_text().strip()
    program = runpy.run_path(str(CHART / "files" / "check.py"))
    monkeypatch.setenv("DODONA_URL", "ftp://nowhere")
    with pytest.raises(InvalidRequest, match="ftp"):
        program["main"](arguments)
    assert "--cells=3" in arguments


def test_notes_have_commands_that_a_shell_takes(each: Case) -> None:
    text = each.rendered.notes.replace("\\\n", " ")
    lines = [it.strip() for it in text.splitlines() if it.strip().startswith(("kubectl", "helm"))]
    assert len(lines) >= 3
    for line in lines:
        assert NAMESPACE in shlex.split(line)
