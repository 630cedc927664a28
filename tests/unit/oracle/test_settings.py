"""Settings: command line over environment over defaults, and clear words for wrong ones."""

from pathlib import Path

import pytest

from dodona_oracle import __main__ as program
from dodona_oracle.__main__ import main
from dodona_oracle.shell.settings import MasterSettings, ProxySettings
from dodona_server.settings import parse_settings


def must_not_run(settings: object) -> None:
    raise AssertionError(f"a process began with {settings}")


def master(*arguments: str) -> MasterSettings:
    settings = parse_settings(MasterSettings, "master", list(arguments))
    assert isinstance(settings, MasterSettings)
    return settings


def proxy(*arguments: str) -> ProxySettings:
    settings = parse_settings(ProxySettings, "proxy", list(arguments))
    assert isinstance(settings, ProxySettings)
    return settings


def test_defaults() -> None:
    settings = master("--data-dir", "/d")
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.1", 8500, Path("/d"))
    assert proxy().address == "http://127.0.0.1:8501"
    assert proxy().master_url == "http://127.0.0.1:8500"


def test_the_environment_is_read_and_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DODONA_MASTER_DATA_DIR", "/from/environment")
    monkeypatch.setenv("DODONA_MASTER_PORT", "1234")
    monkeypatch.setenv("DODONA_PROXY_PORT", "4321")
    assert master().data_dir == Path("/from/environment")
    assert master("--port", "99").port == 99
    assert proxy().port == 4321


def test_the_address_of_a_proxy_is_its_host_and_port_or_its_public_url() -> None:
    assert proxy("--host", "::1", "--port", "7").address == "http://[::1]:7"
    public = proxy("--host", "0.0.0.0", "--insecure", "--public-url", "https://proxy.example/")
    assert public.address == "https://proxy.example"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["master"], ["data-dir", "required"]),
        (["master", "--data-dir", "/d", "--port", "0"], ["port", "greater"]),
        (["master", "--data-dir", "/d", "--port", "x"], ["port", "integer"]),
        (["master", "--data-dir", "/d", "--window-ms", "901"], ["window-ms", "900"]),
        (["master", "--data-dir", "/d", "--renew-ms", "400"], ["renew-ms", "window-ms"]),
        (["master", "--data-dir", "/d", "--colour", "red"], ["--colour"]),
        (["proxy", "--master-url", "127.0.0.1:8500"], ["master-url", "http://127.0.0.1:8500"]),
        (["proxy", "--host", "0.0.0.0", "--insecure"], ["public-url"]),
        (["proxy", "--host", "192.0.2.1"], ["cluster-key-file", "insecure"]),
        (["master", "--host", "::", "--data-dir", "/d"], ["cluster-key-file"]),
        (["node"], ["usage", "master", "proxy"]),
        ([], ["usage", "master", "proxy"]),
    ],
)
def test_wrong_usage_is_reported_in_words_without_a_traceback(
    arguments: list[str],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for role, (_, kind) in list(program.ROLES.items()):  # wrong settings must not run anything
        monkeypatch.setitem(program.ROLES, role, (must_not_run, kind))
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    for word in words:
        assert word in said


@pytest.mark.parametrize(("role", "kind"), [("master", MasterSettings), ("proxy", ProxySettings)])
def test_help_prints_every_setting(
    role: str, kind: type[MasterSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([role, "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    for name, field in kind.model_fields.items():
        assert f"--{name.replace('_', '-')}" in printed
        assert field.description, name
