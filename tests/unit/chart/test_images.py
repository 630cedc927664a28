"""The images, as far as that can be told without building them: their files are plain and linted,
they copy what there is, install what is locked, and start what there is."""

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from helm_chart import DOCKER, ROLES, ROOT
from suite.projects import requirements_of, settings_of

IMAGES: Final = (*ROLES, "tools")
LOCKS: Final = {
    "server": [
        *requirements_of("dodona-server", "replication"),
        *requirements_of("dodona", "tracing"),
    ],
    "sql": requirements_of("dodona", "sql"),
}
"""What each of the images' locks has to have, besides our own packages."""
PIN: Final = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE | re.IGNORECASE)


def dockerfile(role: str) -> str:
    return (DOCKER / f"{role}.Dockerfile").read_text()


def instructions(role: str) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", dockerfile(role))
    lines = [it for it in text.splitlines() if it and not it.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_there_is_one_for_each_role() -> None:
    assert sorted(it.name for it in DOCKER.glob("*.Dockerfile")) == sorted(
        f"{role}.Dockerfile" for role in IMAGES
    )


def test_hadolint_has_nothing_to_complain_of() -> None:
    program = shutil.which("hadolint", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("hadolint comes with the extra `chart`, for Linux on x86-64 only")
    paths = [str(it) for it in sorted(DOCKER.glob("*.Dockerfile"))]
    ended = subprocess.run(
        [program, "--no-color", *paths], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("role", IMAGES)
def test_copied_files_exist_and_are_sent_to_the_image_builder(role: str) -> None:
    context = [rest for word, rest in instructions(role) if word == "COPY" and "--from" not in rest]
    sources = [it for rest in context for it in rest.split()[:-1]]
    assert "client" in sources
    rules = [it for it in (ROOT / ".dockerignore").read_text().splitlines() if it[:1] != "#"]
    assert rules[0] == "*", "nothing but what is named"
    sent = [it.removeprefix("!") for it in rules if it.startswith("!")]
    for source in sources:
        assert (ROOT / source).exists()
        assert any(fnmatch.fnmatch(source, it) for it in sent)


@pytest.mark.parametrize("role", IMAGES)
def test_an_image_is_plain(role: str) -> None:
    found = instructions(role)
    assert [rest for word, rest in found if word == "FROM"] == ["${BASE} AS build", "${BASE}"]
    assert ("ARG", "BASE=python:3.11-slim") in found
    last = found[max(index for index, (word, _) in enumerate(found) if word == "FROM") :]
    words = [word for word, _ in last]
    assert words == [
        it for it in ("FROM", "RUN", "COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT") if it in words
    ]
    assert dict(last)["USER"] == "65532:65532", "a number: Kubernetes can tell that it is not root"


@pytest.mark.parametrize("role", IMAGES)
def test_an_image_has_the_bytecode_of_the_standard_library(role: str, tmp_path: Path) -> None:
    """The base has none, and a root file system that can't be written gets none."""
    found = instructions(role)
    last = found[max(index for index, (word, _) in enumerate(found) if word == "FROM") :]
    (line,) = [rest for word, rest in last if word == "RUN"]
    library = tmp_path / "lib"
    sources = [
        library / it for it in ("good.py", "package/it.py", "tests/bad.py", "site-packages/a.py")
    ]
    for source in sources:
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("def :" if "bad" in source.name else "x = 1")
    *words, folder = shlex.split(line)
    assert words[:3] == ["python", "-m", "compileall"]
    (code,) = re.findall(r"^\$\(python -c '(.*)'\)$", folder)
    asked = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert Path(asked.stdout.strip()) == Path(json.__file__).parent.parent
    ended = subprocess.run([sys.executable, *words[1:], str(library)], check=False, timeout=60)
    assert ended.returncode == 0, "a file that is wrong on purpose stops no build"
    assert {it.name.partition(".")[0] for it in library.rglob("*.pyc")} == {"good", "it"}


@pytest.mark.parametrize("role", IMAGES)
def test_images_install_only_hashed_or_own_packages(role: str) -> None:
    runs = [rest for word, rest in instructions(role) if word == "RUN"]
    installs = [it for run in runs for it in run.split(" && ") if "pip" in it and "venv" not in it]
    assert len(installs) == 4
    for it in installs:
        is_hashed = "--require-hashes" in it and "--only-binary :all:" in it
        is_ours = "--no-deps" in it
        assert is_hashed or is_ours


@pytest.mark.parametrize("name", [*LOCKS, "build"])
def test_a_lock_is_a_part_of_the_project_s(name: str) -> None:
    text = (DOCKER / f"{name}.lock").read_text()
    whole = blocks((ROOT / "requirements.lock").read_text())
    found = blocks(text)
    assert found
    for package, hashes in found.items():
        assert hashes, "each has its hashes"
        assert hashes <= whole[package], f"{package}: run make lock"


def blocks(text: str) -> dict[tuple[str, str], set[str]]:
    """Hashes by package and version."""
    found: dict[tuple[str, str], set[str]] = {}
    for block in re.split(r"\n(?=[a-zA-Z0-9])", text):
        if pin := PIN.match(block):
            hashes = set(re.findall(r"sha256:[0-9a-f]{64}", block))
            found.setdefault((pin[1], pin[2]), set()).update(hashes)
    return found


def test_locks_have_all_that_the_projects_ask_for() -> None:
    build = settings_of("dodona-server")["build-system"]["requires"]
    for name, requirements in {**LOCKS, "build": build}.items():
        locked = {package for package, _ in blocks((DOCKER / f"{name}.lock").read_text())}
        asked = {re.split(r"[\[<>=;~! ]", it)[0].lower() for it in requirements}
        assert asked - {"dodona"} <= locked, "run make lock"


@pytest.mark.integration
@pytest.mark.part("an image starts")
@pytest.mark.parametrize("role", IMAGES)
def test_an_entry_point_starts_and_prints_its_help(role: str, tmp_path: Path) -> None:
    """Where nothing of the environment or of the folder is in its way, as in the image."""
    (entry,) = [rest for word, rest in instructions(role) if word == "ENTRYPOINT"]
    python, *words = json.loads(entry)
    assert (python, words[:2]) == ("/opt/dodona/bin/python", ["-I", "-m"])
    places = [str(ROOT / it) for it in ("client", "oracle", "tablets")]
    code = f"import sys, runpy; sys.path[:0] = {places!r}; sys.argv = {words[2:]!r} + ['--help']; "
    code += "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    ended = subprocess.run(
        [sys.executable, "-I", "-c", code],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert "--help" in ended.stdout
