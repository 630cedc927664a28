"""Messages grow at their ends alone: what an older release says and hears is what it was."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dodona_wire.messages import base, catalog, cells, data, replicas, traced, tree
from integration.other_release import RELEASES, paths_of, unpack

RENAMED = {"Rows": "LookupReply"}
"""Messages that have another name now. On the wire a message has a tag and no name."""

WIDENED = {("Column", 1), ("Column", 2)}
"""Fields that take more than before, by the place in the message. A column's type was one of the
seven stored types, and key columns were ascending. A release that knows no logical types or no
descending columns refuses a table that has them, and hears what it always heard of every other
table."""

CARRIERS = {("Traced", 1)}
"""Fields that carry any message of a kind. A message that is new is refused by its number, also
within another one (`codec.known_requests`)."""

SHAPES = """
import json, sys
import msgspec
from pathlib import Path
from unit.client.test_growth import shapes_of
if Path(sys.path[0], "dodona_wire").exists():
    from dodona_wire.messages import base, catalog, cells, data, traced, tree
    modules = [base, catalog, cells, data, traced, tree]
    if Path(sys.path[0], "dodona_wire", "messages", "replicas.py").exists():
        from dodona_wire.messages import replicas
        modules.append(replicas)
else:
    from dodona._core import messages  # where the oldest releases have all of them
    modules = [messages]
assert all(it.__file__.startswith(sys.path[0]) for it in modules), modules
print(json.dumps(shapes_of(*(it for module in modules for it in vars(module).values()))))
"""


def shapes_of(*names: Any) -> dict[str, Any]:
    """The fields of each message in order, with their types (wherever these live), and whether they
    may be absent. What is no message is passed over."""
    shapes: dict[str, Any] = {}
    for kind in names:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            fields = [
                (it.encode_name, re.sub(r"[\w.]+\.", "", str(it.type)), not it.required)
                for it in msgspec.structs.fields(kind)
            ]
            shapes[kind.__name__] = {"tag": kind.__struct_config__.tag, "fields": fields}
    return json.loads(json.dumps(shapes))  # type: ignore[no-any-return]


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name.partition(".")[0])
def test_messages_are_those_of_older_releases_or_longer(release: Path, tmp_path: Path) -> None:
    roots = paths_of(unpack(release, tmp_path))
    code = f"import sys; sys.path[:0] = {roots!r}\n{SHAPES}"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    modules = (base, catalog, cells, data, replicas, traced, tree)
    new = shapes_of(*(it for module in modules for it in vars(module).values()))
    old = {RENAMED.get(name, name): shape for name, shape in json.loads(said.stdout).items()}
    assert old.keys() <= new.keys(), "a message went: older releases still send it"
    for name, shape in old.items():
        now = new[name]
        assert now["tag"] == shape["tag"], name
        count = len(shape["fields"])
        fields = now["fields"][:count]
        for place, (field, was) in enumerate(zip(fields, shape["fields"], strict=True)):
            if (name, place) in CARRIERS:
                assert {*was[1].split(" | ")} <= {*field[1].split(" | ")}, name
                continue
            assert field == was or ((name, place) in WIDENED and field[0] == was[0]), name
        assert all(is_optional for _, _, is_optional in now["fields"][count:]), name
