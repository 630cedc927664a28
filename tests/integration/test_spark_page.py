"""The code of the pages about Spark runs, in order."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
ADDRESS: Final = "http://127.0.0.1:8500"


@pytest.mark.parametrize("name", ["spark", "spark-streaming"])
def test_the_code_of_a_page_runs_in_order(
    spark: SparkSession, url: str, tmp_path: Path, name: str
) -> None:
    page = DOCS / f"{name}.md"
    text = page.read_text("utf-8")
    names: dict[str, Any] = {"spark": spark, "checkpoints": str(tmp_path)}
    blocks = [*re.finditer(r"```python\n(.*?)```", text, re.DOTALL)]
    assert len(blocks) > 2
    for block in blocks:
        lines_before = "\n" * text[: block.start(1)].count("\n")  # so that errors name their line
        code = block[1].replace(ADDRESS, url)
        exec(compile(lines_before + code, str(page), "exec"), names)
    names["db"].close()
