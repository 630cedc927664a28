"""Every page's blocks run as they are written, and print what the page says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from documents.page_runs import RunPlan, run_plans
from documents.running import Job

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE_S_MAX: Final = 240
HERE: Final = [it for it in run_plans() if it.place == "cluster"]
REST: Final = [it for it in HERE if "REST" in it.name or "rest" in it.name]


def run_apart(plan: RunPlan, folder: Path, addresses: dict[str, str], programs: list[Path]) -> None:
    """In a process of its own, whose warnings are errors."""
    lines = [it.line for it in plan.blocks]
    job = Job(plan.page, lines, addresses, plan.before, list(plan.skipped))
    known = {it: os.environ[it] for it in ("PYTHONPATH", "LANG", "JAVA_HOME") if it in os.environ}
    path = [*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    master = addresses["127.0.0.1:8500"]
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "documents.running"],
        input=job.to_json(),
        cwd=folder,
        env={
            **known,
            "PATH": ":".join(path),
            "HOME": str(folder),
            "DODONA_URL": f"http://{master}",
        },
        capture_output=True,
        text=True,
        timeout=PAGE_S_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]


@pytest.mark.parametrize("plan", HERE, ids=lambda plan: plan.name)
def test_a_page_does_what_it_says(
    plan: RunPlan, folder: Path, addresses: dict[str, str], programs: Path, stand_in_curl: Path
) -> None:
    is_lacking = shutil.which("curl") is None
    run_apart(plan, folder, addresses, [stand_in_curl, programs] if is_lacking else [programs])


@pytest.mark.parametrize("plan", REST, ids=lambda plan: plan.name)
def test_a_page_about_rest_runs_with_a_replacement_for_curl(
    plan: RunPlan, folder: Path, addresses: dict[str, str], programs: Path, stand_in_curl: Path
) -> None:
    """Which not every machine has."""
    run_apart(plan, folder, addresses, [stand_in_curl, programs])
