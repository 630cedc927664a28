"""What the Spark study hands to its peers, without Spark: `make bench-spark` runs it."""

import struct
import subprocess
import sys
from subprocess import PIPE
from time import sleep
from typing import Any

import pyarrow as pa
import pytest

from dodona_loadtest import bench
from dodona_loadtest.harness.peak_memory import PERIOD_S, peak_memory
from dodona_loadtest.harness.servers import private_memory_bytes
from dodona_loadtest.peers.spark import CODE_BYTES, NOTE_BYTES, ROW_BYTES, SCHEMA, copy_data
from suite.programs import program

HELD_BYTES = 64 << 20
SEEN_BYTES_MIN = 48 << 20
"""The kernel counts a process's pages roughly, while it runs."""
LOOKS_MAX = 500

ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "amount": number / 7,
        "count": -number,
        "code": f"{number:032x}",
        "note": f"{number:040x}",
    }
    for number in range(5, 25)
]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_copy_data_hold_the_same_rows(text: pa.DataType) -> None:
    columns = {column["name"]: [row[column["name"]] for row in ROWS] for column in SCHEMA}
    batch = pa.record_batch(columns)
    for name in ("code", "note"):
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, name, batch.column(name).cast(text))
    assert rows_of(copy_data(batch)) == ROWS
    assert rows_of(copy_data(batch.slice(3, 4))) == ROWS[3:7]
    assert batch.slice(0, 1).nbytes <= ROW_BYTES + 20


def rows_of(data: bytes) -> list[dict[str, Any]]:
    """By PostgreSQL's own description of the format."""
    rows = []
    while data:
        count, data = struct.unpack(">h", data[:2])[0], data[2:]
        assert count == len(SCHEMA)
        row = {}
        for column, layout in zip(SCHEMA, (">q", ">d", ">q", None, None), strict=True):
            size_bytes, data = struct.unpack(">i", data[:4])[0], data[4:]
            raw, data = data[:size_bytes], data[size_bytes:]
            row[column["name"]] = struct.unpack(layout, raw)[0] if layout else raw.decode()
        rows.append(row)
    return rows


def test_text_of_another_length_is_not_cut() -> None:
    row = {**ROWS[0], "code": "x" * (CODE_BYTES + 1), "note": "y" * NOTE_BYTES}
    with pytest.raises(pa.ArrowInvalid):
        copy_data(pa.RecordBatch.from_pylist([row]))


HOLD_FOR_A_WHILE = f"""
import sys
print("ready", flush=True)
sys.stdin.readline()
held = b"x" * {HELD_BYTES}
print("held", flush=True)
sys.stdin.readline()
del held
print("let go", flush=True)
sys.stdin.readline()
"""


def test_the_most_memory_of_a_while_is_seen() -> None:
    """Of a small process of its own: of one that is large, like this one, the kernel may take
    back as much meanwhile as is added."""
    words = [sys.executable, "-S", "-c", HOLD_FOR_A_WHILE]
    with program(words, stdin=PIPE, stdout=PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        said = [holder.stdout.readline()]
        before = private_memory_bytes(holder.pid)
        with peak_memory(holder.pid) as peak:
            said.append(go_on(holder))
            for _ in range(LOOKS_MAX):
                if peak.size_bytes >= before + SEEN_BYTES_MIN:
                    break
                sleep(PERIOD_S)
            said.append(go_on(holder))
            assert private_memory_bytes(holder.pid) < before + SEEN_BYTES_MIN
        holder.stdin.close()
    assert said == ["ready\n", "held\n", "let go\n"]
    assert peak.size_bytes >= before + SEEN_BYTES_MIN


def go_on(holder: subprocess.Popen[str]) -> str:
    """Have it take its next step. → what it says after it."""
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    return holder.stdout.readline()


def test_a_section_is_written_of_one_group_into_a_place_that_is_there(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "RESULTS.md"
    document.write_text("# Results\n\n<!-- spark: begin -->\n<!-- spark: end -->\n")
    for words in (["--section", str(document)], ["--rows", "storage", "--section", str(document)]):
        with pytest.raises(SystemExit):
            bench.main(words)
        assert "no lines <!-- " in capsys.readouterr().err
