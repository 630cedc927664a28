"""docs/how-to/observe.md is true: what it runs runs, and it names no metric that there is not."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx
import pytest

from documents.metrics_page import REPLICATED, STANDING_BY, TABLES
from dodona_local.launcher import LocalCluster
from dodona_server.metrics import full_name

pytestmark = pytest.mark.integration

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = (DOCS / "how-to" / "observe.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_metrics_that_pages_name_are_there() -> None:
    tables = [*TABLES.items(), *REPLICATED.items(), *STANDING_BY.items()]
    names = {full_name(server, it) for server, table in tables for it in table}
    named = {it.removesuffix("_bucket") for it in re.findall(r"\bdodona_[a-z_]*[a-z]", PAGE)}
    named -= {"dodona_master_metrics_key_file"}
    assert named
    assert named <= names


def test_the_scrape_of_the_page_asks_every_kind_of_server_as_a_bearer(
    cluster: LocalCluster,
) -> None:
    (block,) = blocks("yaml")
    assert re.search(r"authorization:\n +credentials_file: /", block), "its type is Bearer"
    assert "metrics_path" not in block, "it is /metrics"
    assert {*re.findall(r'"([a-z]+)(?:-\d)?:\d+"', block)} == {*TABLES}
    assert httpx.get(f"{cluster.master_url}/metrics").is_success


def test_lines_of_a_real_process_are_objects_of_the_page(tmp_path: Path) -> None:
    port = "1"  # nobody may listen there, or somebody does
    words = ["--log-format", "json", "--host", "192.0.2.1", "--port", port, "--insecure"]
    folder = str(tmp_path / "data")
    ended = subprocess.run(
        [sys.executable, "-m", "dodona_oracle", "master", "--data-dir", folder, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert (line["event"], line["server"], line["level"]) == ("cannot_run", "master", "critical")
    assert line["kind"] == "invalid_request"
