"""What reads the Helm chart, for its tests and for what is generated of it.

Owns: where things are. `python -m helm_chart` writes the parts of the chart that are made from
others. Importing this needs no Helm: `helm_chart.rendering` does.
"""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "helm" / "dodona"
DOCKER: Final = ROOT / "helm" / "docker"
COMPOSE: Final = DOCKER / "compose.yaml"
SCHEMA: Final = CHART / "values.schema.json"
README: Final = CHART / "README.md"
ROLES: Final = ("master", "proxy", "node", "gateway")
