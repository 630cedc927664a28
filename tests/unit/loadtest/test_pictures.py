"""The figures of a run as a file, and what is drawn from it."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from dodona_loadtest import pictures
from dodona_loadtest.harness.drawing import figures_of
from dodona_loadtest.harness.durability import LATER, READS, SYNCED, durability_note
from dodona_loadtest.harness.measure import Sample
from dodona_loadtest.harness.panels import Bar, Panel, panels_of
from dodona_loadtest.harness.plotting import draw_panel, short_number
from dodona_loadtest.harness.recorded import Recorded, read_recorded, record, write_recorded
from dodona_loadtest.harness.report import Report
from dodona_loadtest.harness.row import Contender, Line, Observation, Row, RowResult, Running
from dodona_loadtest.harness.study import (
    Effort,
    Finding,
    Measure,
    Performance,
    Performer,
    Study,
    StudyResult,
)
from dodona_loadtest.rows import ROWS

PNG_BYTES_MAX = 100_000
FACTS = [
    ("date", "2026-01-02"),
    ("pinning", "none (client on core 0)"),
    ("rounds", "3 interleaved, each"),
]


@contextmanager
def _never(folder: Path) -> Iterator[Running]:
    raise AssertionError(folder)
    yield


@contextmanager
def _never_either(folder: Path, effort: Effort) -> Iterator[Performance]:
    raise AssertionError(folder, effort)
    yield


def _line(callers: int, name: str, rates: list[int]) -> Line:
    samples = [Sample(rate, 1, 1.0, 1e6 / rate, 5e6 / rate, 10.0) for rate in rates]
    return Line(callers, name, tuple(Observation(sample, 5.0) for sample in samples))


def row_result() -> RowResult:
    contenders = (Contender("Dodona", _never), Contender("Peer, careless", _never, LATER))
    row = Row("a-row", "A row", "Fair.", contenders, (1, 64), (1,))
    lines = [
        _line(callers, it.name, [callers * 1_000, callers * 3_000, callers * 2_000])
        for callers in (1, 64)
        for it in contenders
    ]
    return RowResult(row, lines, {it.name: "1.0" for it in contenders}, {"Lost": "it is not here"})


def study_result(measure_count: int = 2, performer_count: int = 2) -> StudyResult:
    performers = tuple(
        Performer(f"System {place}", _never_either) for place in range(performer_count)
    )
    measures = [
        Measure(f"measure {number} of some length", "µs") for number in range(measure_count)
    ]
    measures += [Measure("measure 0 of some length: p99", "µs"), Measure("pause", "ms", True)]
    study = Study("a-study", "A study", "Fair.", performers, tuple(measures))
    findings = [
        Finding(measure, it.name, (3.0, 1.0, 2.0)) for measure in measures for it in performers
    ]
    return StudyResult(study, findings, {it.name: "1.0" for it in performers})


def recorded() -> Recorded:
    return record(FACTS, [row_result(), study_result()])


def test_figures_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    write_recorded(tmp_path / "run.json", recorded())
    assert read_recorded(tmp_path / "run.json") == recorded()
    row, study = recorded().results
    assert (row.durability, row.dropped) == (
        {"Dodona": SYNCED, "Peer, careless": LATER},
        {"Lost": "it is not here"},
    )
    assert study.versions == {"System 0": "1.0", "System 1": "1.0"}


def test_panels_of_rates_come_before_panels_of_latencies() -> None:
    panels = panels_of(recorded().results[0])
    assert [(it.title, it.unit, it.is_more_better) for it in panels] == [
        ("1 caller", "a second", True),
        ("64 callers", "a second", True),
        ("1 caller", "ms", False),
        ("64 callers", "ms", False),
    ]
    assert panels[1].bars[0] == Bar("Dodona", 128_000, 64_000, 192_000)
    assert panels[2].bars[0].value == pytest.approx(0.5)
    assert panels[2].bars[0].p99 == pytest.approx(2.5)


def test_a_panel_shows_p99_beside_p50_and_the_worst_round_of_a_pause() -> None:
    panels = panels_of(recorded().results[1])
    assert [it.title for it in panels] == [
        "measure 0 of some length",
        "measure 1 of some length",
        "pause",
    ]
    assert panels[0].bars[0] == Bar("System 0", 2, 1, 3, 2)
    assert panels[1].bars[0].p99 is None
    assert panels[2].bars[0].value == 3


def test_pictures_are_drawn_from_a_file_and_are_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    big = study_result(measure_count=16, performer_count=6)
    run = record(FACTS, [row_result(), big])
    write_recorded(tmp_path / "run.json", run)
    assert pictures.main([str(tmp_path / "run.json")]) == 0
    drawn = [tmp_path / "a-row.png", tmp_path / "a-study.png"]
    assert capsys.readouterr().out.splitlines() == [str(path) for path in drawn]
    for path in drawn:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", content[16:24])
        assert width == 1_540
        assert height > 300
        assert len(content) < PNG_BYTES_MAX


KEPT = sorted((Path(__file__).parents[3] / "loadtest" / "results").glob("*.json"))


def texts_of(figure: Figure) -> list[tuple[str, Bbox]]:
    """All that can be read, and where it stands, in pixels."""
    canvas: Any = figure.canvas
    canvas.draw()
    found: list[Any] = figure.findobj(Text)
    shown = [it for it in found if it.get_text() and it.get_visible()]
    return [(it.get_text(), it.get_window_extent()) for it in shown]


def long_study() -> StudyResult:
    """Of names and titles that no line has room for."""
    name = "a system whose name is longer than what it did"
    performers = tuple(Performer(f"{name}, {place}", _never_either) for place in range(2))
    measures = tuple(
        Measure(f"{'measure of some length ' * 8}{number}", "ms") for number in range(3)
    )
    study = Study("long", "A title that goes on and on " * 8, "Fair.", performers, measures)
    findings = [Finding(measure, it.name, (3e5, 1e5)) for measure in measures for it in performers]
    return StudyResult(study, findings, {it.name: "1.0" for it in performers})


def test_there_are_kept_figures() -> None:
    assert KEPT


@pytest.mark.slow("every picture is drawn and measured")
@pytest.mark.parametrize("path", [None, *KEPT], ids=lambda path: path.stem if path else "long")
def test_all_text_stays_inside_the_picture_and_does_not_overlap(
    path: Path | None,
) -> None:
    run = record(FACTS, [long_study()]) if path is None else read_recorded(path)
    for name, figure in figures_of(run):
        page = figure.bbox
        texts = texts_of(figure)
        for text, place in texts:
            assert page.x0 <= place.x0 < place.x1 <= page.x1, (name, text)
            assert page.y0 <= place.y0 < place.y1 <= page.y1, (name, text)
        for (text, place), (other, its_place) in combinations(texts, 2):
            shared = Bbox.intersection(place, its_place)
            assert shared is None or min(shared.width, shared.height) < 2, (name, text, other)


def drawn_ends(*p99: float) -> list[float]:
    """How far to the right the tick of each p99 stands, as a share of the axis."""
    bars = tuple(Bar(f"System {at}", 1.0, 1.0, 1.0, it) for at, it in enumerate(p99))
    axis = Figure(figsize=(4, 1)).add_axes((0, 0, 1, 1))
    panel = Panel("a panel", "ms", False, bars)
    draw_panel(axis, panel, {bar.contender: "#000000" for bar in bars}, 4.0, has_names=False)
    ticks = [line for line in axis.get_lines() if line.get_gid() == "p99"]
    ends = [line.get_transform().transform(line.get_xydata())[0][0] for line in ticks]
    return [float(end / axis.bbox.x1) for end in ends]


def test_different_tails_have_different_lengths() -> None:
    """None is cut off at an edge, however far out it is."""
    ends = drawn_ends(2.0, 5.0, 50.0)
    assert ends[0] < ends[1] < ends[2] < 1


def test_each_panel_states_its_unit_and_whether_more_or_less_is_better() -> None:
    bars = (Bar("Dodona", 2, 1, 3),)
    tails = (Bar("Dodona", 2, 1, 3, 9),)
    assert Panel("a", "rows/s", True, bars).words == "rows/s, more is better"
    assert Panel("a", "ms", False, tails).words == "ms, logarithmic, less is better"
    assert Panel("a", "ms", False, bars, True).words == "ms, the worst round, less is better"
    (described,) = panels_of(record([], [described_study()]).results[0])
    assert described.words == "MB"


def described_study() -> StudyResult:
    measure = Measure("log written", "MB", is_description=True)
    study = Study("a", "A study", "Fair.", (Performer("Dodona", _never_either),), (measure,))
    return StudyResult(study, [Finding(measure, "Dodona", (3.0, 1.0))])


def test_a_picture_of_more_contenders_is_higher() -> None:
    """A study of one contender's figures is lower than of six, and two rounds have means."""
    measures = tuple(Measure(f"measure {number}", "ms") for number in range(2))
    heights, words = [], ""
    for count in (1, 6):
        performers = tuple(Performer(f"System {at}", _never_either) for at in range(count))
        study = Study("a", "A study", "Fair.", performers, measures)
        findings = [Finding(it, who.name, (3.0, 1.0)) for it in measures for who in performers]
        ((_, figure),) = figures_of(record(FACTS, [StudyResult(study, findings)]))
        heights.append(figure.get_size_inches()[1])
        words = " ".join(text for text, _ in texts_of(figure))
    assert heights[1] - heights[0] > 1
    assert "figures: means of two rounds" in words


def test_an_unreadable_file_of_figures_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{}")
    for name in ("run.json", "missing.json"):
        assert pictures.main([str(tmp_path / name)]) == 2
        assert "can't be read" in capsys.readouterr().err


def test_a_report_shows_the_pictures_that_were_drawn(tmp_path: Path) -> None:
    results: list[RowResult | StudyResult] = [row_result(), study_result()]
    without = Report(FACTS, results).markdown(tmp_path)
    assert "![" not in without
    shown = Report(FACTS, results, tmp_path / "results").markdown(tmp_path)
    assert "\nFair.\n\n![A row](results/a-row.png)\n\n|" in shown
    assert "![A study](results/a-study.png)" in shown


def test_a_report_states_the_durability_of_answers() -> None:
    text = Report([], [row_result(), study_result()]).markdown()
    assert f"- durability: Dodona: {SYNCED}; Peer, careless: {LATER}\n" in text
    assert f"- durability: all {SYNCED}\n" in text
    assert durability_note([("any", READS)]) == f"durability: {READS}"


def test_numbers_are_short() -> None:
    values = (0.1234, 12.34, 999.4, 1_234, 12_345, 1_234_567, 2e9)
    assert list(map(short_number, values)) == [
        *("0.123", "12.3", "999", "1,234", "12.3 k", "1.23 M", "2 G"),
    ]


def test_the_fairness_note_of_a_row_matches_its_durability_classes() -> None:
    begins = {SYNCED: "All synced", LATER: "Nobody waits for the disk", READS: "Random keys"}
    for row in ROWS:
        classes = {it.durability for it in row.contenders}
        for durability, words in begins.items():
            if row.fairness.startswith(words):
                assert classes == {durability}, row.name
    later = {row.name for row in ROWS if row.contenders[0].durability == LATER}
    assert later == {"async-writes", "async-batches"}
