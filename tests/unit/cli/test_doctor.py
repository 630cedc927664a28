"""What is missing, in plain words: `dodona doctor`, and a demonstration without Java."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dodona_local import demo
from dodona_local.cli import extras
from dodona_local.cli.doctor import PURPOSES
from dodona_local.errors import LaunchFailed
from suite.projects import project_of
from unit.cli.commands import Commands


def parts(dodona: Commands) -> dict[str, dict[str, Any]]:
    found = json.loads(dodona.elsewhere("doctor", "--format", "json"))
    return {it["part"]: it for it in found}


def test_every_extra_is_a_part() -> None:
    extras_of_client = project_of("dodona")["optional-dependencies"].keys()
    assert PURPOSES.keys() == extras.PACKAGES_BY_EXTRA.keys() == extras_of_client


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
    def fail(folder: Path, screen: object) -> Iterator[str]:
        raise LaunchFailed("no cluster is started here")
        yield

    monkeypatch.setattr(demo, "_cluster", fail)
    with pytest.raises(LaunchFailed):
        demo.run_demo(is_embedded=False, no_spark="Spark needs Java 17")
    said = capsys.readouterr().out
    assert "Spark needs Java 17\n   The client loads the flights instead. With --embedded" in said
