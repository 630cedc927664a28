"""The figures of a run as a file, from which pictures are drawn without another run.

Owns: the form. It has the same results as the report, round by round. Its readers need nothing else
of the benchmark.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dodona_loadtest.harness.row import Line, RowResult
from dodona_loadtest.harness.study import Finding, StudyResult
from dodona_wire.preload import preload_decoder


class RecordedLine(msgspec.Struct, frozen=True):
    """One contender with so many callers: a value for each round."""

    callers: int
    contender: str
    rates: tuple[float, ...]
    p50_ms: tuple[float, ...]
    p99_ms: tuple[float, ...]
    client_cpu_us: tuple[float, ...]
    servers_cpu_us: tuple[float, ...]
    failures: int


class RecordedRow(msgspec.Struct, frozen=True, tag="row"):
    """The data of `Row` and `RowResult`. `durability` is by contender, Dodona first."""

    name: str
    title: str
    durability: dict[str, str]
    lines: tuple[RecordedLine, ...]
    versions: dict[str, str]
    dropped: dict[str, str]


class RecordedFinding(msgspec.Struct, frozen=True):
    """One contender's figure: a value for each round."""

    measure: str
    unit: str
    is_worst_told: bool
    contender: str
    values: tuple[float, ...]
    is_description: bool = False


class RecordedStudy(msgspec.Struct, frozen=True, tag="study"):
    """The data of `Study` and `StudyResult`."""

    name: str
    title: str
    durability: dict[str, str]
    findings: tuple[RecordedFinding, ...]
    versions: dict[str, str]
    dropped: dict[str, str]
    failures: dict[str, dict[str, int]] = {}
    columns: int = 2


@preload_decoder
class Recorded(msgspec.Struct, frozen=True):
    """All figures of a run."""

    facts: tuple[tuple[str, str], ...]
    results: tuple[RecordedRow | RecordedStudy, ...]


def record(
    facts: Sequence[tuple[str, str]], results: Sequence[RowResult | StudyResult]
) -> Recorded:
    """Return all figures of a run."""
    return Recorded(tuple(facts), tuple(map(_record, results)))


def write_recorded(path: Path, recorded: Recorded) -> None:
    """Write figures in lines, so that a newer file can be compared."""
    text = msgspec.json.format(msgspec.json.encode(recorded), indent=1)
    path.write_bytes(text + b"\n")


def read_recorded(path: Path) -> Recorded:
    """Read figures. Raises OSError, msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Recorded)


def _record(result: RowResult | StudyResult) -> RecordedRow | RecordedStudy:
    versions, dropped = dict(result.versions), dict(result.dropped)
    if isinstance(result, StudyResult):
        study = result.study
        durability = {it.name: study.durability for it in study.performers}
        found = tuple(map(_finding, result.findings))
        return RecordedStudy(
            study.name,
            study.title,
            durability,
            found,
            versions,
            dropped,
            failures=dict(result.failures),
            columns=study.columns,
        )
    row = result.row
    durability = {it.name: it.durability for it in row.contenders}
    lines = tuple(map(_line, result.lines))
    return RecordedRow(row.name, row.title, durability, lines, versions, dropped)


def _line(line: Line) -> RecordedLine:
    samples = [it.sample for it in line.observations]
    return RecordedLine(
        line.callers,
        line.contender,
        rates=tuple(line.rates),
        p50_ms=tuple(it.latency_us_p50 / 1e3 for it in samples),
        p99_ms=tuple(it.latency_us_p99 / 1e3 for it in samples),
        client_cpu_us=tuple(it.client_cpu_us for it in samples),
        servers_cpu_us=tuple(it.servers_cpu_us for it in line.observations),
        failures=line.failures,
    )


def _finding(finding: Finding) -> RecordedFinding:
    measure = finding.measure
    return RecordedFinding(
        measure.name,
        measure.unit,
        measure.is_worst_told,
        finding.contender,
        finding.values,
        measure.is_description,
    )
