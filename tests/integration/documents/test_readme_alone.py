"""The README runs from top to bottom, by someone who has installed Dodona and activated nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from documents.page_runs import RunPlan, run_plans
from documents.running import Job

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

PAGE_S_MAX: Final = 500
ALONE: Final = [it for it in run_plans() if it.place == "alone"]


@pytest.mark.part("the README")
@pytest.mark.parametrize("plan", ALONE, ids=lambda plan: plan.name)
def test_a_page_runs_from_top_to_bottom(plan: RunPlan, folder: Path, stand_in_curl: Path) -> None:
    """Its Python in one process, its commands in one shell. `python3` is another one there."""
    job = Job(plan.page, [it.line for it in plan.blocks], skipped=list(plan.skipped))
    other = folder / "elsewhere"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\necho 'this python3 has no Dodona' >&2; exit 1\n")
    (other / "python3").chmod(0o755)
    active = Path(sys.executable).parent
    path = [it for it in os.environ["PATH"].split(":") if Path(it) != active]
    path = [str(other), *path, *([] if shutil.which("curl") else [str(stand_in_curl)])]
    known = {it: os.environ[it] for it in ("PYTHONPATH", "LANG", "JAVA_HOME") if it in os.environ}
    ended = subprocess.run(
        [sys.executable, "-m", "documents.running"],
        input=job.to_json(),
        cwd=folder,
        env={**known, "PATH": ":".join(path), "HOME": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=PAGE_S_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
