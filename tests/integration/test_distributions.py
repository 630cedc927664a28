"""The wheels of our three distributions, as they install: the light client alone has no server, the
servers add the embedded database and the command, and the load tests come last."""

import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from dodona_local.launcher import LocalCluster
from suite.projects import FOLDERS, ROOT, brought_by, packages_of, project_of

pytestmark = [pytest.mark.integration, pytest.mark.part("an install is a way in")]

BUILT: Final = ("client", "loadtest", "oracle", "tablets", "LICENSE", "README.md", "pyproject.toml")
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
OPEN: Final = """
import sys, dodona
try:
    dodona.open(sys.argv[1]).close()
    print("opened")
except dodona.errors.InvalidRequest as error:
    print(error)
"""
USE_CLUSTER: Final = """
import sys, dodona
key = {"name": "k", "type": "int64", "sort_order": "ascending"}
with dodona.connect(sys.argv[1]) as db:
    db.create_table("//light", [key, {"name": "v", "type": "int64"}], mount=True)
    with db.begin() as tx:
        tx.insert_rows("//light", [{"k": 1, "v": 2}])
    print(list(db.lookup_rows("//light", [{"k": 1}])))
    db.remove_table("//light")
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all three, built from a copy of the checkout."""
    copy, folder = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheels")
    for name in ours():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    run(*PIP, "wheel", *options, "./client", ".", "./loadtest", cwd=copy)
    return folder


def ours() -> list[str]:
    """The files that belong to the project, changes that are not committed included."""
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *BUILT)
    return [it for it in run(*words, cwd=ROOT).split("\0") if it and (ROOT / it).is_file()]


def run(*words: str, cwd: Path) -> str:
    """What a program prints. It sees nothing of the environment in which the tests run."""
    variables = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    ended = subprocess.run(
        words, cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


class Environment:
    """A fresh environment, in which pip installs without an index. The foreign packages that one of
    our distributions needs are there already, as links to those of the environment of the tests."""

    def __init__(self, folder: Path, needs_of: str, *extras: str) -> None:
        self._folder = folder / "environment"
        venv.create(self._folder, symlinks=True)
        (self.packages,) = self._folder.glob("lib/python*/site-packages")
        for name in brought_by(needs_of, *extras):
            its = distribution(name)
            for top in {it.parts[0] for it in its.files or ()} - {"..", "__pycache__"}:
                if not (self.packages / top).exists():
                    (self.packages / top).symlink_to(Path(str(its.locate_file(top))))

    def install(self, wheels: Path, *wanted: str) -> None:
        """Fails if a requirement is neither in the folder of wheels nor here."""
        python = str(self._folder / "bin" / "python")
        options = ("--no-index", "--find-links", str(wheels))
        run(*PIP, "--python", python, "install", *options, *wanted, cwd=self._folder)

    def python(self, *words: str) -> str:
        return self.call("python", "-I", *words)

    def call(self, command: str, *words: str) -> str:
        return run(str(self._folder / "bin" / command), *words, cwd=self._folder)

    @property
    def our_packages(self) -> set[str]:
        """The names of all folders with Dodona's name in it."""
        found = {it.name for it in self.packages.iterdir() if "dodona" in it.name}
        return {it for it in found if not it.endswith(".dist-info")}


def names_of(*distributions: str) -> set[str]:
    return {it.name for name in distributions for it in packages_of(name)}


def test_a_wheel_has_its_license_its_types_and_nothing_else(wheels: Path) -> None:
    for name in FOLDERS:
        (path,) = wheels.glob(f"{name.replace('-', '_')}-[0-9]*.whl")
        with ZipFile(path) as archive:
            files = archive.namelist()
        tops = {it.partition("/")[0] for it in files}
        (described,) = (it for it in tops if it.endswith(".dist-info"))
        assert tops - {described} == names_of(name)
        assert f"{described}/licenses/LICENSE" in files
        assert {f"{it}/py.typed" for it in names_of(name)} <= set(files)
        assert not [it for it in files if it.endswith((".pyc", ".toml"))]


def test_the_light_client_alone_has_no_server_and_uses_a_cluster(
    wheels: Path, tmp_path: Path, cluster: LocalCluster
) -> None:
    light = Environment(tmp_path, "dodona")
    light.install(wheels, "dodona")
    assert light.our_packages == {"dodona", "dodona_wire", "pyspark_dodona"}
    assert "pip install 'dodona[server]'" in light.python("-c", OPEN, str(tmp_path / "db"))
    assert light.python("-c", USE_CLUSTER, cluster.master_url) == "[{'k': 1, 'v': 2}]\n"


def test_the_extra_server_adds_the_embedded_database_and_the_command(
    wheels: Path, tmp_path: Path
) -> None:
    whole = Environment(tmp_path, "dodona-server")
    whole.install(wheels, "dodona[server]")
    assert whole.our_packages == names_of("dodona", "dodona-server")
    assert whole.python("-c", OPEN, str(tmp_path / "db")) == "opened\n"
    assert whole.call("dodona", "--version").split() == ["dodona", project_of("dodona")["version"]]
    assert "up " in whole.call("dodona", "--help")
    assert "pip install 'dodona[sql]'" in whole.call("dodona", "doctor")
    assert "Everything adds up." in whole.call("dodona", "demo", "--embedded")


def test_an_extra_is_added_to_an_install_without_an_index_that_has_dodona(
    wheels: Path, tmp_path: Path
) -> None:
    """As from the clone, whose packages no index has: messages of errors say this command."""
    light = Environment(tmp_path, "dodona", "sql")
    light.install(wheels, "dodona")
    light.install(tmp_path, "dodona[sql]")
    assert light.python("-c", "import dodona, duckdb; print('both')") == "both\n"


@pytest.mark.rest("an install of the servers is in `test`")
def test_load_tests_are_a_distribution_of_their_own(wheels: Path, tmp_path: Path) -> None:
    loaded = Environment(tmp_path, "dodona-loadtest")
    loaded.install(wheels, "dodona-loadtest")
    assert loaded.our_packages == names_of(*FOLDERS)
    for module in ("verify", "load", "bench"):
        assert "--help" in loaded.python("-m", f"dodona_loadtest.{module}", "--help")
    found = loaded.python(
        "-c", "from dodona_loadtest.load import LOCUSTFILES as it; print(*it.iterdir())"
    )
    assert "locustfile_python.py" in found
    assert "locustfile_rest.py" in found
