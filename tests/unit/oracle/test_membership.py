"""Which cells belong to a cluster: a cell comes back with its log, or not at all."""

import pytest

from dodona.errors import DataCorrupted, InvalidRequest
from dodona.types import NO_CLUSTER, CellId, ClusterId, Revision
from dodona_oracle.core.records import CELLS
from dodona_wire.messages.catalog import Assignment, Heartbeat
from unit.oracle.realm import Realm, create


def beat(realm: Realm, cluster: ClusterId, address: str = "http://there") -> Assignment:
    reply = realm.ask(Heartbeat(CellId(1), address, (), 1, Revision(0), cluster))
    assert isinstance(reply, Assignment)
    return reply


def test_a_cell_is_recorded_only_after_it_returns_the_cluster_id() -> None:
    realm = Realm()
    assert beat(realm, NO_CLUSTER) == Assignment(
        (), {CellId(1): "http://there"}, 1, Revision(0), realm.cluster
    )
    assert not [name for name in realm.values if name[0] == CELLS], "it may never have heard of it"
    beat(realm, realm.cluster)
    assert [name for name in realm.values if name[0] == CELLS]


def test_a_cell_that_joined_and_comes_with_an_empty_log_is_refused() -> None:
    realm = Realm()
    beat(realm, realm.cluster)
    for _ in range(2):
        with pytest.raises(DataCorrupted, match="empty log") as refusal:
            beat(realm, NO_CLUSTER)
        assert refusal.value.attributes == {"cell": 1}
        realm.restart()


def test_a_cell_without_the_cluster_id_cannot_take_the_place_of_a_known_cell() -> None:
    realm = Realm()
    beat(realm, realm.cluster)
    realm.instant_us += 10_000_000
    with pytest.raises(DataCorrupted):
        beat(realm, NO_CLUSTER, "http://elsewhere")
    assert realm.catalog.handle(create(), realm.now()).addresses == {}  # type: ignore[union-attr]
    assert beat(realm, realm.cluster).addresses == {CellId(1): "http://there"}


def test_a_cell_of_another_cluster_is_refused() -> None:
    realm = Realm()
    with pytest.raises(InvalidRequest, match="another cluster") as refusal:
        beat(realm, ClusterId(realm.cluster + 1))
    assert refusal.value.attributes["cluster"] == realm.cluster


def test_a_cluster_keeps_its_id_after_a_restart_of_the_master() -> None:
    realm = Realm()
    cluster = realm.cluster
    realm.unix_us += 5
    realm.restart()
    assert beat(realm, NO_CLUSTER).cluster == cluster
