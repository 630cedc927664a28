"""`python -m dodona_gateway [settings]`: one gateway. Any number may serve one cluster.
`python -m dodona_gateway openapi`: its OpenAPI document.

Exit status: 2 for wrong usage, else as `dodona_server.serving` says.
"""

import sys

from dodona_gateway.shell.gateway import openapi_text, run_gateway
from dodona_gateway.shell.settings import GatewaySettings
from dodona_server.serving import run_process

if __name__ == "__main__":
    if sys.argv[1:] == ["openapi"]:
        # A buffer of its own: what Python does without one writes a part, and says nothing.
        with open(1, "w", encoding="utf-8", closefd=False) as out:
            out.write(openapi_text())
    else:
        run_process(GatewaySettings, run_gateway, "python -m dodona_gateway", sys.argv[1:])
