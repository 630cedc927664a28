"""A gateway does not live on without what it does beside its requests."""

import asyncio
from typing import Any

import pytest

from dodona_gateway.shell.service import Service, open_service
from dodona_gateway.shell.settings import GatewaySettings
from dodona_gateway.shell.transactions import Transactions
from dodona_server import beside
from dodona_server.settings import parse_settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("owner", "name"), [(Service, "watch_cluster"), (Transactions, "run"), (None, "")]
)
async def test_the_gateway_stops_if_the_cluster_watcher_or_the_lease_watcher_fails(
    owner: type[Any] | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> None:
        raise OSError("no space left")

    stopped: list[BaseException] = []
    monkeypatch.setattr(beside, "stop_process", stopped.append)
    if owner is not None:
        monkeypatch.setattr(owner, name, fail)
    options = ["--master-url", "http://127.0.0.1:1", "--insecure"]
    settings = parse_settings(GatewaySettings, "gateway", options)
    async with open_service(settings):
        await asyncio.sleep(0.02)
    assert [str(it) for it in stopped] == ["no space left"] * (owner is not None)
