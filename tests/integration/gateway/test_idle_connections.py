"""Connections that are kept for the next request, as load balancers, scrapers and `requests` do.

A server that ends one after a few seconds of silence meets the next request just then, and whoever
sent it can't know whether it was carried out.
"""

import http.client
import time
from typing import Final
from urllib.parse import urlsplit

import pytest

from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration

PAUSE_SECONDS: Final = 6
"""Longer than uvicorn keeps an idle connection unless told otherwise, which is 5 s."""


def test_every_server_keeps_an_idle_connection(gateways: LocalCluster) -> None:
    urls = (*gateways.gateway_urls, gateways.master_url, gateways.proxy_url, *gateways.node_urls)
    lines = [http.client.HTTPConnection(str(urlsplit(url).netloc)) for url in urls]

    def ask() -> list[int]:
        answers = []
        for line in lines:
            line.request("GET", "/healthz")
            answer = line.getresponse()
            answer.read()
            answers.append(answer.status)
        return answers

    assert ask() == [200] * len(lines)
    its_sockets = [line.sock for line in lines]
    time.sleep(PAUSE_SECONDS)
    assert ask() == [200] * len(lines)
    assert [line.sock for line in lines] == its_sockets, "none was connected anew"
    for line in lines:
        line.close()
