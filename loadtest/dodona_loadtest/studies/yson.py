"""Study of the gateway: rows into YSON and back."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.durability import READS
from dodona_loadtest.harness.study import (
    Bound,
    Effort,
    Figures,
    Measure,
    Performance,
    Performer,
    Study,
)
from dodona_loadtest.peers.yson_codecs import (
    CodecWorker,
    DodonaCodec,
    TextOrBinary,
    YtsaurusCodec,
    open_codec,
    version,
)

ROWS: Final = 200_000
SLOW_SHARE: Final = 0.1
"""The share of the rows for the codec that needs minutes for all of them."""
FORMATS: Final[tuple[TextOrBinary, ...]] = ("binary", "text")

NATIVE: Final = YtsaurusCodec("yt_yson_bindings", "yt_yson_bindings", "yt_yson_bindings")
PYTHON: Final = YtsaurusCodec("yt.yson", "yt.yson.parser", "yt.yson.writer")


def _story(
    codec: CodecWorker, library: str | None, package: str, share: float = 1.0
) -> Callable[[Path, Effort], AbstractContextManager[Performance]]:
    @contextmanager
    def story(folder: Path, effort: Effort) -> Iterator[Performance]:
        count = effort.share(round(ROWS * share))
        with open_codec(codec, effort.embedded_cores, library) as process:
            process.call(CodecWorker.prepare, count)

            def perform(number: int) -> Figures:
                figures = {}
                for format in FORMATS:
                    spent = process.call(CodecWorker.read, format)
                    figures[f"{format} rows read"] = count / max(spent.cpu_s, 0.001)
                    spent = process.call(CodecWorker.write, format)
                    figures[f"{format} rows written"] = count / max(spent.cpu_s, 0.001)
                return figures

            yield Performance(version(package), perform)

    return story


STUDY: Final = Study(
    name="yson",
    title="Rows into YSON and back, per core",
    fairness=(
        f"{ROWS:,} rows (int64 in order, uint64 of any length, double, string of 6 to 9 bytes) as "
        "dicts, and the same bytes from all. ytsaurus-yson is native code, the codec in "
        f"ytsaurus-client Python, as Dodona's: it gets {SLOW_SHARE:.0%} of the rows. Dodona reads "
        "parts of 64 KiB and gives rows back part by part; it knows the columns when it writes. "
        "Rows for each second of processor time."
    ),
    warms_up=True,
    durability=READS,
    performers=(
        Performer("Dodona", _story(DodonaCodec(), None, "dodona")),
        Performer("ytsaurus-yson", _story(NATIVE, "yt_yson_bindings", "ytsaurus-yson")),
        Performer(
            "ytsaurus-client", _story(PYTHON, "yt.yson.parser", "ytsaurus-client", SLOW_SHARE)
        ),
    ),
    measures=tuple(
        Measure(f"{format} rows {verb}", "rows/s")
        for format in FORMATS
        for verb in ("read", "written")
    ),
    bounds=(
        Bound("binary rows read", at_least=200_000),
        Bound("binary rows written", at_least=200_000),
        Bound("text rows read", at_least=100_000),
        Bound("text rows written", at_least=100_000),
    ),
)
