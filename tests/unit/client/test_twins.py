"""The blocking and the asyncio API are one: the same names, arguments and defaults."""

import inspect
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona.aio_catalog import AsyncCatalog, AsyncTree
from dodona.aio_loads import AsyncLoad, AsyncLoads
from dodona.catalog import Catalog, Tree

TWINS = [
    (dodona.Client, dodona.aio.AsyncClient),
    (dodona.Transaction, dodona.aio.AsyncTransaction),
    (dodona.MasterTransaction, dodona.aio.AsyncMasterTransaction),
    (dodona.Snapshot, dodona.aio.AsyncSnapshot),
    (dodona.Loads, AsyncLoads),
    (dodona.Load, AsyncLoad),
    (Tree, AsyncTree),
    (Catalog, AsyncCatalog),
]


def methods_of(kind: type) -> dict[str, Any]:
    """What users may call, inherited or not."""
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def arguments_of(method: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(method).parameters.values()
    return [(it.name, it.kind, it.default) for it in parameters]


def properties_of(kind: type) -> list[str]:
    return [name for name, it in inspect.getmembers(kind) if isinstance(it, property)]


@pytest.mark.parametrize(("blocking", "twin"), TWINS)
def test_twins_have_the_same_names_and_arguments(blocking: type, twin: type) -> None:
    ours, theirs = methods_of(blocking), methods_of(twin)
    assert sorted(ours) == sorted(theirs)
    for name in ours:
        assert arguments_of(ours[name]) == arguments_of(theirs[name]), name
    assert properties_of(blocking) == properties_of(twin)


@pytest.mark.parametrize(("blocking", "twin"), TWINS)
def test_all_public_methods_and_properties_have_docstrings(blocking: type, twin: type) -> None:
    for name, method in methods_of(blocking).items():
        assert inspect.getdoc(method), name
        assert inspect.getdoc(getattr(twin, name)), name
    for name in properties_of(blocking):
        assert inspect.getdoc(getattr(blocking, name)), name
        assert inspect.getdoc(getattr(twin, name)), name
    assert inspect.getdoc(blocking)
    assert inspect.getdoc(twin)


def test_a_master_transaction_has_no_mount_reshard_or_alter_calls() -> None:
    """It takes effect outside of transactions, so that a commit could not promise it."""
    only_outside = {*methods_of(Catalog)} - {*methods_of(Tree)}
    assert only_outside >= {"mount_table", "reshard_table", "alter_table", "begin_master"}
    assert not only_outside & {*methods_of(dodona.MasterTransaction)}


@pytest.mark.parametrize("name", sorted(dodona.__all__))
def test_all_exported_classes_and_functions_have_docstrings(name: str) -> None:
    exported = getattr(dodona, name)
    if inspect.isclass(exported) or inspect.isfunction(exported):
        assert (exported.__doc__ or "").strip()
