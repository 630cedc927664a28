"""`python -m integration.gateway.picture FILE`: the README's picture of the console, of a cluster
that is at work. Its logs have copies, for which it needs etcd.

Owns: what is in the picture. It takes a minute, for charts that have a past.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

import dodona
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import Replicas
from integration.gateway.browser import Watched, find_browser, launched
from integration.gateway.busy import Writer, furnish

SIZE: Final = {"width": 1280, "height": 1010}
PAST_MS: Final = 54_000


def take_picture(path: Path) -> None:
    """Raises SystemExit without a browser, and if the page has anything to complain of."""
    program = find_browser()
    if program is None:
        raise SystemExit("there is no chromium: apt-get install chromium")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            f"{folder}/data", gateway_count=1, is_insecure=True, replicas=Replicas(3)
        ) as cluster,
        launched(program) as browser,
    ):
        with dodona.connect(cluster.master_url) as db:
            furnish(db)
        with Writer(cluster.master_url):
            cluster.kill("gateway")  # so that its past begins when all are at work
            cluster.wait_until_ready("gateway", start_count=2)
            page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
            watched = Watched(page, cluster.gateway_urls[0])
            watched.open().wait_for_timeout(PAST_MS)
            page.screenshot(path=path)
        if watched.complaints:
            raise SystemExit("\n".join(watched.complaints))


if __name__ == "__main__":
    take_picture(Path(sys.argv[1]))
