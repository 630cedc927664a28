"""The contracts of import-linter refuse each kind of import that would turn the layers around.

Owns: planted imports. `make lint` checks the imports that there are.
"""

from copy import deepcopy
from importlib import import_module
from typing import Any, Final

import grimp
import pytest
from importlinter.application.use_cases import read_user_options
from importlinter.configuration import configure
from importlinter.domain.contract import Contract

from suite.projects import ROOT

configure()
OPTIONS: Final = read_user_options(str(ROOT / "pyproject.toml"))
KINDS: Final = {
    "forbidden": "ForbiddenContract",
    "layers": "LayersContract",
    "protected": "ProtectedContract",
}
ARROWS: Final = [
    # a server, and another server or a client
    ("dodona_oracle.core.master", "dodona_tablets.core.node"),
    ("dodona_oracle.shell.master", "dodona.client"),
    ("dodona_tablets.shell.service", "dodona_oracle.core.master"),
    ("dodona_tablets.core.cell.cell", "dodona._core.session"),
    ("dodona_replication.core.owner", "dodona_tablets.core.records"),
    ("dodona_server.runtime", "dodona_replication.core.owner"),
    # what all share, and the client
    ("dodona_wire.messages.base", "dodona_server.runtime"),
    ("dodona_wire.types", "dodona.client"),
    ("dodona.client", "dodona_server.runtime"),
    ("dodona.client", "dodona_local.embedded"),
    ("pyspark_dodona.reader", "dodona_local.embedded"),
    # YTsaurus's API, and the gateway
    ("dodona_ytsaurus.commands.rows", "dodona_gateway.shell.gateway"),
    ("dodona_gateway.shell.gateway", "dodona_ytsaurus.commands.rows"),
    # a shell below a core, and upward between parts of a core
    ("dodona_gateway.core.access.tokens", "dodona_gateway.shell.gateway"),
    ("dodona_oracle.core.master", "dodona_oracle.shell.store"),
    ("dodona_tablets.core.node", "dodona_tablets.shell.log"),
    ("dodona_tablets.core.rows.store", "dodona_tablets.core.cell.cell"),
    ("dodona_tablets.core.tablet.locks", "dodona_tablets.core.tablet.tablet"),
    ("dodona_tablets.core.commit.participant", "dodona_tablets.core.mounting.mounting"),
    ("dodona_tablets.core.upkeep.flushing", "dodona_tablets.core.commit.participant"),
    ("dodona_tablets.core.cell.cell", "dodona_tablets.core.cell.outbox"),
    # inside the client, and inside what all share
    ("dodona._core.protocol.steps", "dodona._core.session"),
    ("dodona._core.reading.reading", "dodona._core.row_session"),
    ("dodona._core.session", "dodona._io.engine"),
    ("dodona.catalog", "dodona.client"),
    ("dodona_wire.rows.schema", "dodona_wire.messages.base"),
    ("dodona_wire.errors", "dodona_wire.rows.keys"),
    # a core, and what only a shell may use
    ("dodona_tablets.core.node", "asyncio"),
    ("dodona._core.session", "time"),
    # the product, and its tests
    ("dodona_local.demo", "pytest"),
]
"""An importer, and a module that it must not import."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    names = OPTIONS.session_options["root_packages"]
    return grimp.build_graph(*names, include_external_packages=True, cache_dir=None)


def contract(options: dict[str, Any]) -> Contract:
    module = import_module(f"importlinter.contracts.{options['type']}")
    kind = getattr(module, KINDS[options["type"]])
    found: Contract = kind(options["name"], OPTIONS.session_options, options)
    return found


def broken(graph: grimp.ImportGraph) -> list[str]:
    """The names of the contracts that the imports break."""
    return [
        it["name"]
        for it in OPTIONS.contracts_options
        if not contract(it).check(deepcopy(graph), verbose=False).kept
    ]


@pytest.mark.parametrize(("importer", "imported"), ARROWS, ids=lambda it: it)
def test_an_arrow_against_the_layers_is_refused(
    graph: grimp.ImportGraph, importer: str, imported: str
) -> None:
    assert importer in graph.modules
    changed = deepcopy(graph)
    changed.add_import(importer=importer, imported=imported)
    assert broken(changed)


def test_the_imports_that_there_are_break_nothing(graph: grimp.ImportGraph) -> None:
    assert broken(graph) == []
