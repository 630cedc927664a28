"""The pages about Spark run as they are written, in the one session that the tests have."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from documents.page_runs import RunPlan, run_plans
from documents.running import PageRun
from dodona_local.launcher import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.mark.parametrize(
    "plan", [it for it in run_plans() if it.place == "spark"], ids=lambda it: it.name
)
def test_a_page_does_what_it_says(
    plan: RunPlan,
    spark: "SparkSession",
    addresses: dict[str, str],
    pages_cluster: LocalCluster,
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DODONA_URL", pages_cluster.master_url)
    with PageRun(addresses, {"spark": spark, "checkpoints": str(tmp_path)}) as page:
        if plan.before:
            page.execute(plan.before)
        page.run(plan.blocks)
        page.names["db"].close()
