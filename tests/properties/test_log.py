"""Whatever is done to a log, it says what a list would say, from some checkpoint on.

Steps are appends of all kinds, truncations, restarts, and ends in the middle of a truncation. The
model has all records that were ever appended; what a truncation was allowed to take may be there
or not, but only up to a checkpoint.
"""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dodona.types import Timestamp
from dodona_tablets.core.records import ROW_RECORDS, Checkpoint, Record, WatermarkRaised
from dodona_tablets.shell.log import LOG_NAME, CellLog
from dodona_tablets.shell.log_check import verify_log
from suite.levels import examples
from unit.tablets.logs import BYTES_MAX, rows

ROW = "row"
KINDS = st.sampled_from([ROW, ROW, ROW, "structural", "checkpoint"])
SIZES = st.sampled_from([10, 1_000, 10_000, 70_000])


class LogMachine(RuleBasedStateMachine):
    """A log and the list of what was appended to it."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name)
        self._appended: list[Record] = []
        self._number = 0
        self._keep_from = 0
        """The place of the checkpoint that the log was truncated at last."""

    def teardown(self) -> None:
        self._log.close()
        self._folder.cleanup()

    @initialize()
    def open(self) -> None:
        self._log = CellLog.open(self._path, 32 * BYTES_MAX)
        self._log._segment_bytes_max = BYTES_MAX // 16

    @rule(kinds=st.lists(KINDS, min_size=1, max_size=4), size_bytes=SIZES)
    def append(self, kinds: list[str], size_bytes: int) -> None:
        records: list[Record] = []
        for kind in kinds:
            self._number += 1
            if kind == ROW:
                records.append(rows(self._number, size_bytes))
            elif kind == "structural":
                records.append(WatermarkRaised(Timestamp(self._number)))
            else:
                records.append(Checkpoint(self._number))
        self._log.append(records)
        self._appended += records

    def _places(self) -> list[int]:
        """Of the checkpoints that may be asked for."""
        return [
            place
            for place, record in enumerate(self._appended)
            if isinstance(record, Checkpoint) and place >= self._keep_from
        ]

    @precondition(lambda self: self._places())
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self._places()))
        self._log.truncate_before(self._number_at(place))
        self._keep_from = place

    def _number_at(self, place: int) -> int:
        record = self._appended[place]
        assert isinstance(record, Checkpoint)
        return record.number

    @rule()
    def restart(self) -> None:
        self._log.close()
        self.open()
        assert list(self._log.survey()) == [
            record for record in self._log.read() if type(record) not in ROW_RECORDS
        ]

    @precondition(lambda self: self._places())
    @rule(data=st.data())
    def end_in_a_truncation(self, data: st.DataObject) -> None:
        """Some of the files that it would have removed are gone."""
        place = data.draw(st.sampled_from(self._places()))
        count = self._log._count_before(self._log._index_by_checkpoint[self._number_at(place)])
        gone = data.draw(st.integers(0, count))
        paths = sorted((self._path / LOG_NAME).glob("*.mdb"))
        assert self._log._bounds is not None
        self._log._bounds.move_first(int(paths[count].stem))
        self._log.close()
        for path in paths[:gone]:
            path.unlink()
        self._keep_from = place
        verify_log(self._path)
        self.open()
        list(self._log.read())

    @invariant()
    def what_is_read_is_what_was_appended(self) -> None:
        found = list(self._log.read())
        assert found == self._appended[len(self._appended) - len(found) :]
        assert len(found) >= len(self._appended) - self._keep_from
        if len(found) < len(self._appended):
            assert isinstance(found[0], Checkpoint)

    @precondition(lambda self: self._places())
    @rule(data=st.data())
    def read_from_a_checkpoint(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self._places()))
        assert list(self._log.read(self._number_at(place))) == self._appended[place:]


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=examples(15), stateful_step_count=20, deadline=None)
