"""`python -m helm_chart`: write the parts of the chart that are made from others, then lint it.

Owns: which those are: the settings in `values.schema.json`, the table of values in `README.md`, and
the compose file beside the Dockerfiles.
Exit status: 1 if Helm complains.
"""

import json
import sys

import helm_python

from helm_chart import CHART, COMPOSE, README, SCHEMA
from helm_chart.compose import compose_text
from helm_chart.rendering import defaults, render
from helm_chart.settings import with_settings
from helm_chart.table import values_table, with_table


def main() -> None:
    """Raises SystemExit, OSError, HelmError."""
    schema = with_settings(json.loads(SCHEMA.read_text()))
    SCHEMA.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    README.write_text(with_table(README.read_text(), values_table(schema, defaults())))
    COMPOSE.write_text(compose_text())
    report = helm_python.lint(CHART, {}, strict=True)
    for message in report["messages"]:
        print(f"{message['path']}: {message['error']}")
    print(f"{len(render().objects)} objects, {len(report['errors'])} errors")
    if report["errors"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
