"""The study of validation: its worker times commits, and finds a cell that validates nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.sample_rows import SampleRows
from dodona_loadtest.peers.dodona_validation import EmbeddedValidationWorker


class Inattentive(EmbeddedValidationWorker):
    """Its transactions don't validate what they have read."""

    isolation = "snapshot"


@pytest.mark.integration
def test_commits_are_timed_and_must_notice_changes_of_rows_that_were_read(tmp_path: Path) -> None:
    rows = SampleRows(300)

    async def live(worker: EmbeddedValidationWorker) -> Any:
        await worker.open()
        try:
            await worker.create("//bench", "full")
            await worker.write_rows("//bench", rows)
            return await worker.time_commits("//bench", rows, 0.0)
        finally:
            await worker.close()

    commits = asyncio.run(live(EmbeddedValidationWorker(str(tmp_path / "serializable"))))
    assert min(commits) > 0
    with pytest.raises(ContenderFailed, match="not noticed"):
        asyncio.run(live(Inattentive(str(tmp_path / "snapshot"))))
