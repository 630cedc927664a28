"""Which Java Spark would start, and what is said if there is none that it can use."""

from pathlib import Path

import pytest

from dodona_local import java
from dodona_local.java import missing_java


def java_that_says(folder: Path, text: str) -> str:
    """A program `java` of one answer. → its folder."""
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    "text", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19 LTS']
)
def test_a_new_java_lacks_nothing(tmp_path: Path, text: str) -> None:
    assert missing_java({"PATH": java_that_says(tmp_path / "bin", text)}) is None
    assert missing_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}) is None


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('openjdk version "1.8.0_292"', "/bin/java is Java 1.8.0_292"),
        ('openjdk version "11.0.2" 2019-01-15', "/bin/java is Java 11.0.2"),
        ("the operation could not be completed", "/bin/java does not say its version"),
    ],
)
def test_an_old_java_is_named_with_its_version(tmp_path: Path, text: str, fact: str) -> None:
    missing = missing_java({"PATH": java_that_says(tmp_path / "bin", text)})
    assert missing is not None
    assert missing.startswith("Spark needs Java 17 or newer, and ")
    assert fact in missing
    assert missing.endswith("install openjdk-17-jre-headless, or set JAVA_HOME")


def test_java_home_is_the_only_place_if_it_is_set(tmp_path: Path) -> None:
    path = java_that_says(tmp_path / "bin", 'openjdk version "17.0.1"')
    missing = missing_java({"JAVA_HOME": "/nonexistent", "PATH": path})
    assert missing is not None
    assert "there is no /nonexistent/bin/java (JAVA_HOME)" in missing
    assert "PATH has none" in (missing_java({"PATH": str(tmp_path / "empty")}) or "")


def test_a_java_that_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "ANSWER_S_MAX", 0.05)
    folder = java_that_says(tmp_path / "bin", "'; exec sleep 60; echo '")
    missing = missing_java({"PATH": f"{folder}:/usr/bin:/bin"})
    assert missing is not None
    assert "does not say its version" in missing
