"""Load through the Python client: `locust -f {this file} --host MASTER_URL`.

`--help` lists the scenarios and all that may be set of them.
"""

from dodona_loadtest.swarm.users import PythonUser

__all__ = ["PythonUser"]
