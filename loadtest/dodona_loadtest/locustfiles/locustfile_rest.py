"""Load through REST: `locust -f {this file} --host GATEWAY_URL --master-url URL`.

`--help` lists the scenarios and all that may be set of them.
"""

from dodona_loadtest.swarm.users import RestUser

__all__ = ["RestUser"]
