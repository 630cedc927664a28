"""What is missing, in plain words: `dodona doctor`, and a demonstration without Java."""

import importlib.metadata
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from dodona_local import demo
from dodona_local.cli import extras
from dodona_local.cli.doctor import PURPOSES
from dodona_local.errors import LaunchFailed
from suite.projects import normal, project_of, requirements_of
from unit.cli.commands import Commands


def parts(dodona: Commands) -> dict[str, dict[str, Any]]:
    found = json.loads(dodona.elsewhere("doctor", "--format", "json"))
    return {it["part"]: it for it in found}


def test_every_extra_is_a_part() -> None:
    extras_of_client = project_of("dodona")["optional-dependencies"].keys()
    assert PURPOSES.keys() == extras.PACKAGES_BY_EXTRA.keys() == extras_of_client


def requirements_of_extra(extra: str) -> list[Requirement]:
    """Of packages that are not ours."""
    found = (
        requirements_of("dodona-server")
        if extra == "server"
        else project_of("dodona-server")["optional-dependencies"][extra]
        if extra in ("demo", "replication")
        else project_of("dodona")["optional-dependencies"][extra]
    )
    parsed = [Requirement(it) for it in found]
    light = {normal(Requirement(it).name) for it in requirements_of("dodona")}
    return [it for it in parsed if normal(it.name) not in {"dodona", *light}]


@pytest.mark.parametrize("extra", PURPOSES)
def test_the_modules_of_an_extra_are_those_of_its_requirements(extra: str) -> None:
    names = {
        "exporter_otlp_proto_http": "opentelemetry_exporter_otlp_proto_http",
        "grpc": "grpcio",
    }
    modules = {it.replace(".", "_") for it in extras.PACKAGES_BY_EXTRA[extra]}
    modules = {names.get(it.removeprefix("opentelemetry_"), it) for it in modules}
    wanted = {normal(it.name).replace("-", "_") for it in requirements_of_extra(extra)}
    assert modules == wanted


def _below(version: str) -> str:
    """A version shortly before one of two numbers."""
    major, minor = map(int, version.split("."))
    return f"{major}.{minor - 1}.9999" if minor else f"{major - 1}.9999"


@pytest.mark.parametrize("extra", PURPOSES)
def test_versions_that_are_checked_are_those_of_the_requirements(extra: str) -> None:
    checked = extras.VERSIONS_BY_EXTRA.get(extra, {})
    wanted = {it.name: it.specifier for it in requirements_of_extra(extra)}
    bounded = {it for it, its in wanted.items() if any(one.operator != ">=" for one in its)}
    assert bounded <= checked.keys(), "a package may be too new"
    for name, (first, end) in checked.items():
        assert first in wanted[name]
        assert _below(first) not in wanted[name]
        assert (f"{end or 9999}.0" in wanted[name]) is (end is None)
        assert end is None or f"{first}.9999" in wanted[name]


@pytest.mark.parametrize(
    ("extra", "package", "version"),
    [
        ("sql", "duckdb", "1.4.3"),
        ("spark", "pandas", "3.0.0"),
        ("spark", "pandas", "2.1.9"),
        ("spark", "pyspark", "4.4.0"),
        ("spark", "pyspark", "4.3"),
    ],
)
def test_a_package_of_another_version_is_named_with_the_versions_that_fit(
    extra: str, package: str, version: str, dodona: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = importlib.metadata.version
    monkeypatch.setattr(extras, "version", lambda it: version if it == package else here(it))
    todo = parts(dodona)[extra]["what to do"]
    if version == "4.3":
        assert "pyspark" not in todo
        return
    assert parts(dodona)[extra]["state"] == "missing"
    first, end = extras.VERSIONS_BY_EXTRA[extra][package]
    wanted = f"{extra} needs {package} {first} or newer" + (f", below {end}" if end else "")
    assert todo == f"{wanted}, and {version} is installed: pip install 'dodona[{extra}]'"


def test_without_the_servers_packages_all_parts_are_listed_as_plain_text(
    dodona: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = {**extras.PACKAGES_BY_EXTRA, "server": ("no_such_package",)}
    monkeypatch.setattr(extras, "PACKAGES_BY_EXTRA", packages)
    lines = dodona.elsewhere("doctor").splitlines()
    assert len(lines) == 1 + len(PURPOSES)
    (server,) = [it.split(" | ") for it in lines if it.startswith("server | ")]
    assert server[1] == "missing"
    assert server[3].endswith("(no_such_package): pip install 'dodona[server]'")


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    dodona: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = {**extras.PACKAGES_BY_EXTRA, "sql": ("numpy", "no_such.package")}
    monkeypatch.setattr(extras, "PACKAGES_BY_EXTRA", packages)
    found = parts(dodona)
    assert found["sql"]["state"] == "missing"
    assert found["sql"]["what to do"] == (
        "sql needs packages that are not installed (no_such.package): pip install 'dodona[sql]'"
    )
    assert (found["server"]["state"], found["server"]["what to do"]) == ("works", "nothing")


def test_without_java_spark_is_missing(dodona: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    spark = parts(dodona)["spark"]
    assert spark["state"] == "missing"
    assert "Java 17" in spark["what to do"]
    assert "there is no /nonexistent/bin/java" in spark["what to do"]


def test_without_etcd_a_user_of_replicas_is_told_how_to_get_it(
    dodona: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = parts(dodona)["replication"]
    assert found["state"] == "missing"
    assert found["what to do"] == (
        "dodona up --replicas needs etcd, and there is no program `etcd` on the PATH: install it "
        "(Debian, Ubuntu: apt-get install etcd-server)"
    )
    etcd = tmp_path / "etcd"
    etcd.touch(0o700)
    found = parts(dodona)["replication"]
    assert (found["state"], found["what to do"]) == ("works", "nothing")


def test_people_get_a_table(dodona: Commands) -> None:
    lines = dodona.elsewhere("doctor").splitlines()
    assert lines[0].split()[:3] == ["part", "state", "purpose"]
    assert len(lines) == 2 + len(PURPOSES)


@pytest.mark.parametrize("embedded", [True, False])
def test_the_demonstration_leaves_out_spark_only_if_it_would_use_it(
    embedded: bool, dodona: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def run_demo(**given: Any) -> bool:
        asked.update(given)
        return True

    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.setattr(demo, "run_demo", run_demo)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert dodona.elsewhere("demo", *(["--embedded"] if embedded else [])) == ""
    assert asked["is_embedded"] is embedded
    assert (asked["no_spark"] is None) is embedded


def test_a_demonstration_without_spark_says_why_and_that_it_can_run_embedded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def fail(folder: Path, screen: object, is_replicated: bool) -> Iterator[str]:
        raise LaunchFailed("no cluster is started here")
        yield

    monkeypatch.setattr(demo, "_cluster", fail)
    with pytest.raises(LaunchFailed):
        demo.run_demo(is_embedded=False, no_spark="Spark needs Java 17")
    said = capsys.readouterr().out
    assert "Spark needs Java 17\n   The client loads the flights instead. With --embedded" in said
