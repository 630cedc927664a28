"""Which Python Spark's workers run, after one of Dodona's modules was imported."""

import os
import subprocess
import sys

import pytest

SCRIPT = "import {}, os; print(os.environ['PYSPARK_PYTHON'])"


@pytest.mark.parametrize("module", ["pyspark_dodona", "dodona.spark"])
@pytest.mark.parametrize("given", [None, "/opt/python"])
def test_spark_workers_use_this_python_unless_pyspark_python_is_set(
    module: str, given: str | None
) -> None:
    environment = {it: text for it, text in os.environ.items() if it != "PYSPARK_PYTHON"}
    if given is not None:
        environment["PYSPARK_PYTHON"] = given
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(module)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert said.stdout.strip() == (given or sys.executable)
