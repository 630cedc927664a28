"""Power cuts, failing calls and lying disks under the real stores, as far as CI has time for them.

Owns: the short form of `python -m disk_faults`. Fails where nothing may be traced: then nothing of
this is known of that machine.
"""

import os
import re
from pathlib import Path
from typing import Final

import pytest

from disk_faults import __main__ as command
from disk_faults.campaign import PARTS, Job, run_jobs
from disk_faults.workloads import WORKLOADS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.alone,  # the images are made in a process for each core
]

IMAGES: Final = 2_000
WORKERS: Final = len(os.sched_getaffinity(0))


def test_each_disk_image_after_a_crash_is_complete_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- crash images: begin -->\n<!-- crash images: end -->\n")
    status = command.main(["--images", str(IMAGES), "--seed", "1", "--markdown", str(page)])
    said = capsys.readouterr().out
    assert status == 0, said
    made = re.search(r"([\d,]+) images in", page.read_text("utf-8"))
    assert made is not None, said
    assert int(made.group(1).replace(",", "")) >= IMAGES
    assert "- 0 broken promises" in page.read_text("utf-8")


@pytest.mark.parametrize("name", ["log of a cell", "store of a master", "store of a log replica"])
def test_every_call_may_fail_in_every_way(name: str) -> None:
    """The process ends loudly, the next one goes on, and nothing that was promised is missing."""
    workload = [it.name for it in WORKLOADS].index(name)
    jobs = [Job("errors", workload, seed=7, part=part) for part in range(PARTS)]
    tally = run_jobs(jobs, WORKERS, watch=lambda _: None)
    assert tally.problems == []
    assert tally.counts["calls that failed"] > 90
    assert tally.counts["processes that ended loudly"] > 80
