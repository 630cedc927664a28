"""Run one gateway with `python -m dodona_gateway [settings]`. Any number may serve one cluster.
`python -m dodona_gateway openapi` prints the OpenAPI document of the gateway.

The exit status is 2 for wrong usage. All others are those of `dodona_server.serving`.
"""

import sys

from dodona_server.early_stop import end_on_sigterm

if __name__ == "__main__":
    end_on_sigterm()  # before the imports, which take long

from dodona_gateway.shell.gateway import openapi_text, run_gateway
from dodona_gateway.shell.settings import GatewaySettings
from dodona_server.serving import run_process

if __name__ == "__main__":
    if sys.argv[1:] == ["openapi"]:
        # `print` may write only a part and report no error. A buffered file writes the whole text
        # or raises.
        with open(1, "w", encoding="utf-8", closefd=False) as out:
            out.write(openapi_text())
    else:
        run_process(GatewaySettings, run_gateway, "python -m dodona_gateway", sys.argv[1:])
