"""Attributes without meaning over REST: what is refused, and what is warned of."""

from typing import Final

import pytest

from integration.gateway.rest import Rest

pytestmark = pytest.mark.integration

SCHEMA: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


def test_a_misspelled_setting_is_refused_with_the_one_that_was_meant(rest: Rest) -> None:
    path = "//attributes/misspelled"
    told = rest.refused("create_table", path=path, schema=SCHEMA, attributes={"min_data_tll": 1})
    assert "Did you mean 'min_data_ttl'" in told.detail
    assert not rest("node_exists", path=path)["value"]


def test_the_answer_warns_of_attributes_without_meaning(rest: Rest) -> None:
    path = "//attributes/meaningless"
    ours = {"team": "x", "erasure_codec": "none"}
    made = rest("create_table", path=path, schema=SCHEMA, attributes=ours)
    assert [text.split("'")[1] for text in made["warnings"]] == ["erasure_codec"]
    told = rest("set_node", path=f"{path}/@expiration_time", value=5)
    assert "expiration_time" in told["warnings"][0]
    told = rest("create_directory", path="//attributes/d", attributes={"account": "x"})
    assert "account" in told["warnings"][0]


def test_the_answer_has_no_warning_for_attributes_with_a_meaning(rest: Rest) -> None:
    path = "//attributes/plain"
    attributes = {"team": "x", "max_data_ttl": 5}
    assert "warnings" not in rest("create_table", path=path, schema=SCHEMA, attributes=attributes)
    assert rest("set_node", path=f"{path}/@team", value="y") == {}


def test_the_isolation_of_a_table_is_set_and_shown(rest: Rest) -> None:
    path = "//attributes/isolated"
    isolation = {"isolation": "serializable"}
    made = rest("create_table", path=path, schema=SCHEMA, attributes=isolation)
    assert made["settings"] == rest("get_table", path=path)["settings"] == isolation
    assert rest("set_node", path=f"{path}/@isolation", value="snapshot") == {}
    assert rest("get_node", path=f"{path}/@isolation")["value"] == "snapshot"
    assert rest("set_node", path=f"{path}/@isolation", value=None) == {}
    assert rest("get_table", path=path)["settings"] == {}
    told = rest.refused("set_node", path=f"{path}/@isolation", value="serial")
    assert 'isolation must be "snapshot" or "serializable"' in told.detail
    plain = f"{path}-none"
    rest("create_table", path=plain, schema=SCHEMA, atomicity="none")
    told = rest.refused("set_node", path=f"{plain}/@isolation", value="serializable")
    assert 'needs atomicity "full"' in told.detail


def test_yt_saurus_clients_are_warned_in_a_header(rest: Rest) -> None:
    attributes = {"dynamic": True, "schema": SCHEMA, "replication_factor": 3, "team": "x"}
    parameters = {
        "type": "table",
        "path": "//attributes/yt",
        "recursive": True,
        "attributes": attributes,
    }
    made = rest.http.post("/api/v4/create", json=parameters)
    assert made.status_code == 200, made.text
    assert "'replication_factor'" in made.headers["X-Dodona-Warnings"]
    assert "team" not in made.headers["X-Dodona-Warnings"]
