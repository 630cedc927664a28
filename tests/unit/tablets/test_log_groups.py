"""The bytes of a log's groups: flags, and damage anywhere."""

import struct
import zlib
from pathlib import Path

import msgspec
import pytest

from dodona.errors import DataCorrupted
from dodona.types import KEY_MIN, CellId, Timestamp, TransactionId
from dodona_tablets.core.records import (
    AbortDecided,
    AllAcknowledged,
    Checkpoint,
    ClusterJoined,
    CommittedHere,
    PreparedHere,
    Record,
    RowsTaken,
    TabletUnmounted,
)
from dodona_tablets.shell.log_groups import (
    CHECKPOINT,
    STRUCTURAL,
    GroupKey,
    decode_group,
    decode_key,
    encode_group,
)
from dodona_wire.messages.cells import TellRows
from unit.tablets.cells import ATOMIC, NON_ATOMIC, changes, put
from unit.tablets.logs import RECORDS, rows

PATH = Path("here")


def decode(key: GroupKey, value: bytes | bytearray) -> list[Record]:
    return decode_group(key, memoryview(value), PATH)


def test_an_encoded_group_is_decoded_to_the_same_records() -> None:
    key, value = encode_group(7, RECORDS)
    assert decode_key(key.raw, PATH) == key
    assert key.index == 7
    assert decode(key, value) == RECORDS


def test_every_prefix_of_a_group_is_refused() -> None:
    key, value = encode_group(7, RECORDS)
    for length in range(len(value)):
        with pytest.raises(DataCorrupted):
            decode(key, value[:length])


def test_every_bit_counts_of_the_key_and_of_the_value() -> None:
    key, value = encode_group(7, RECORDS)
    whole = key.raw + value
    for place in range(len(whole)):
        for bit in range(8):
            raw = bytearray(whole)
            raw[place] ^= 1 << bit
            damaged_key = decode_key(bytes(raw[: len(key.raw)]), PATH)
            with pytest.raises(DataCorrupted):
                decode(damaged_key, raw[len(key.raw) :])


@pytest.mark.parametrize("length", [0, 7, 10])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(DataCorrupted, match="not the key of a log group"):
        decode_key(bytes(length), PATH)


def test_a_damaged_group_is_reported_with_file_and_group() -> None:
    key, value = encode_group(7, RECORDS)
    with pytest.raises(DataCorrupted, match="fails its checksum") as caught:
        decode(key, value[:-1])
    assert caught.value.attributes == {"path": "here", "group": 7}  # it lies in no mapped file


def taken() -> RowsTaken:
    return RowsTaken(TellRows(CellId(1), ATOMIC, NON_ATOMIC, (), KEY_MIN, (), None))


def test_only_groups_with_other_records_than_rows_and_outcomes_are_structural() -> None:
    transaction, at = TransactionId(1), Timestamp(2)
    commit = CommittedHere(transaction, at, (changes(put(1, 1)),))
    prepared = PreparedHere(transaction, at, (CellId(0), CellId(1)), ())
    outcomes: list[Record] = [AbortDecided(transaction), AllAcknowledged(transaction)]
    of_rows: list[Record] = [commit, prepared, *outcomes, rows(1), taken(), *RECORDS[:2]]
    assert encode_group(1, of_rows)[0].flags == 0
    for record in (ClusterJoined(1), TabletUnmounted(ATOMIC), RECORDS[2]):  # type: ignore[arg-type]
        assert encode_group(1, [*of_rows, record])[0].flags == STRUCTURAL
    assert encode_group(1, [*of_rows, Checkpoint(1)])[0].flags == STRUCTURAL | CHECKPOINT


def test_groups_of_format_1_are_refused_with_both_formats() -> None:
    with pytest.raises(DataCorrupted, match=r"here has format 1\. This release of Dodona"):
        decode_key(struct.pack(">Q", 7), PATH)
    key, _ = encode_group(7, RECORDS)
    body = msgspec.msgpack.encode(RECORDS)
    with pytest.raises(DataCorrupted, match=r"has format 1\. This release of Dodona"):
        decode(key, struct.pack(">BI", 1, zlib.crc32(body)) + body)
