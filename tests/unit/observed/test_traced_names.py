"""Which of a client's calls have a span: all that declare one, by what really runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from opentelemetry.trace import INVALID_SPAN, Span

import dodona
from documents.spans_page import declared_spans
from dodona._core.protocol.spans import span_of, traced_as
from dodona._core.protocol.steps import Pause, Protocol
from dodona._io.traced_client import traced
from dodona_gateway.core.answer_budget import within_budget
from dodona_local.embedded import EmbeddedDriver

CLIENT: Final = str(Path(dodona.__file__).parents[1])
SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


class Seen:
    """Which protocols were run, and which spans were begun; none of these is sampled."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._begun: list[str] = []

    def begin(self, name: str, *_: Any) -> Span:
        """As `Spans` does."""
        self._begun.append(name)
        return INVALID_SPAN

    def by(self, call: Any) -> list[str]:
        """→ the spans of these calls."""
        self.names.clear()
        self._begun.clear()
        call()
        return [*self._begun]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found, real = Seen(), EmbeddedDriver.run

    def run(driver: EmbeddedDriver, protocol: Protocol[Any], timeout_ms: int | None = None) -> Any:
        found.names.append(protocol.__qualname__)  # type: ignore[attr-defined]
        return real(driver, traced(protocol, found), timeout_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(EmbeddedDriver, "run", run)
    return found


@pytest.fixture
def db(seen: Seen, tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path / "db") as client:
        client.create_table("//a", SCHEMA, mount=True)
        client.create_table("//n", SCHEMA, mount=True, atomicity="none")
        yield client


def test_each_call_that_declares_a_span_has_it(seen: Seen, db: dodona.Client) -> None:
    row, key = {"k": 1, "v": 1}, {"k": 1}
    data = pa.table({"k": pa.array([2], pa.int64()), "v": pa.array([2], pa.int64())})

    def commit() -> None:
        with db.begin() as tx:
            tx.insert_rows("//a", [row])

    since = db.generate_timestamp()
    session, run = db._session, db._run
    calls: dict[str, Any] = {
        "RowSession.commit": commit,
        "RowSession.write_rows": lambda: db.insert_rows("//a", [row]),
        "RowSession.erase_rows": lambda: db.delete_rows("//a", [key]),
        "write": lambda: db.write("//a", [row]),
        "send_parts": lambda: db.write_arrow("//n", data),
        "ReadSession.lookup_rows": lambda: db.lookup_rows("//a", [key]),
        "ReadSession.lookup_versions": lambda: db.lookup_versions("//a", [key]),
        "within_budget": lambda: run(within_budget(session.lookup_rows("//a", [key]), 1_000_000)),
        "ReadSession.select": lambda: list(db.select("//a")),
        "ReadSession.first_rows": lambda: run(session.first_rows("//a", 10, 1_000_000)),
        "ReadSession.read_ranges": lambda: db.read_arrow("//a"),
        "Query.fetch": lambda: db.query("SELECT * FROM [//a]"),
        "ChangeSession.follow": lambda: db.follow("//a"),
        "ChangeSession.read_changes": lambda: db.read_changes("//a", since),
    }
    names = {
        it.co_qualname: name for it, name in declared_spans().items() if CLIENT in it.co_filename
    }
    assert calls.keys() == names.keys()
    for name, call in calls.items():
        assert seen.by(call) == [f"dodona {names[name]}"], name
        assert name in seen.names


def test_the_commit_of_a_master_transaction_is_no_commit_of_rows(
    seen: Seen, db: dodona.Client
) -> None:
    def commit() -> None:
        tx = db.begin_master()
        tx.create_directory("//d")
        tx.commit()

    assert seen.by(commit) == []
    assert any(it.endswith(".commit") for it in seen.names)


def test_a_declaration_leaves_a_protocol_as_it_is_and_holds_for_its_code_only() -> None:
    def work() -> Protocol[None]:
        yield Pause(1)

    def other() -> Protocol[None]:
        yield Pause(2)

    assert traced_as("query")(work) is work
    renamed = work()
    renamed.__qualname__ = "another name"  # type: ignore[attr-defined]
    assert span_of(renamed) == "query"
    assert span_of(other()) is None

    def forward() -> Protocol[None]:
        return other()

    with pytest.raises(AssertionError):
        traced_as("forwarded")(forward)
