"""Settings of processes that come from the environment."""

import pytest

from dodona_gateway.shell.settings import GatewaySettings
from dodona_oracle.shell.settings import MasterSettings, ProxySettings
from dodona_replication.shell.replica_settings import ReplicaSettings
from dodona_server.settings import ProcessSettings, parse_settings
from dodona_tablets.shell.settings import NodeSettings

KINDS: list[type[ProcessSettings]] = [
    GatewaySettings,
    MasterSettings,
    NodeSettings,
    ProxySettings,
    ReplicaSettings,
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_misspelled_variable_is_refused_with_the_one_that_was_meant(
    kind: type[ProcessSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = kind.model_config.get("env_prefix", "")
    monkeypatch.setenv(f"{prefix}FINISH_MS_MX", "7")
    with pytest.raises(SystemExit) as ended:
        parse_settings(kind, "server", [])
    assert ended.value.code == 2
    assert f"{prefix}FINISH_MS_MX: did you mean {prefix}FINISH_MS_MAX?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["SERVICE_HOST", "PORT_8502_TCP", "WHATEVER_ELSE"])
def test_other_variables_of_the_prefix_are_left_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"DODONA_GATEWAY_{name}", "tcp://10.0.0.1:8502")
    monkeypatch.setenv("DODONA_GATEWAY_FINISH_MS_MAX", "7")
    settings = parse_settings(GatewaySettings, "gateway", ["--insecure"])
    assert settings.finish_ms_max == 7
