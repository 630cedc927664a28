"""Whatever the OpenAPI document allows or forbids is sent by somebody who knows nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from dodona_local.launcher import LocalCluster
from integration.gateway.rest import Rest

pytestmark = pytest.mark.integration

DOCUMENT: Final = Path(__file__).resolve().parents[3] / "docs" / "reference" / "openapi.json"
EXAMPLES_MAX: Final = int(os.environ.get("DODONA_SCHEMATHESIS_EXAMPLES", "20"))
"""Of each operation that are drawn, besides those at the limits of what is allowed."""
# What is allowed by the schema may still be wrong: a path that is none, a table that is not there.
CHECKS_LEFT_OUT: Final = "positive_data_acceptance"
STREAM: Final = "bulk_write"
"""Its body is no JSON: `test_fuzz` sends some."""
HOOKS: Final = "integration.gateway.patience"


def without_tokens(folder: Path) -> Path:
    """The document of a gateway that asks for none: whoever may do everything may remove all
    tokens, and sees no more of the gateway then."""
    document = json.loads(DOCUMENT.read_text())
    del document["security"]
    path = folder / "openapi.json"
    path.write_text(json.dumps(document))
    return path


def test_a_gateway_behaves_as_its_openapi_document_describes(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", gateway_count=1, is_insecure=True) as cluster:
        (url,) = cluster.gateway_urls
        arguments = ["run", str(without_tokens(tmp_path)), "--url", url]
        arguments += ["--phases", "examples,coverage,fuzzing"]
        arguments += ["--max-examples", str(EXAMPLES_MAX), "--seed", "1"]
        # One after the other: who waits for a table that somebody else unmounts is told 503.
        arguments += ["--workers", "1"]
        arguments += ["--exclude-checks", CHECKS_LEFT_OUT, "--exclude-operation-id", STREAM]
        arguments += ["--request-timeout", "75", "--continue-on-failure"]
        arguments += ["--no-color", "--warnings", "off"]
        ended = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "SCHEMATHESIS_HOOKS": HOOKS},
            timeout=285,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "No issues found" in ended.stdout
        assert cluster.processes["gateway"].start_count == 1
        with Rest(url) as rest:
            rest("create_table", path="//still/there", schema=SCHEMA, mount=True)
            rest("insert_rows", table="//still/there", rows=[{"id": 1, "v": "x"}])
            assert rest("lookup_rows", table="//still/there", keys=[{"id": 1}])["rows"]


SCHEMA: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "utf8"},
]
