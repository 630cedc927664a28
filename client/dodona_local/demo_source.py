"""Choose the flights of the demonstration: the real ones if their package is installed.

Owns: the choice, and what the screen says about it. The made-up flights need no package, so that
the demonstration runs right after an install.
"""

import importlib.util
from pathlib import Path
from typing import Any

from dodona_local import demo_data, demo_made_up
from dodona_local.demo_data import FLIGHT_COLUMNS, MISSING, PACKAGE


def are_flights_real() -> bool:
    """Return whether the package of the real flights is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


def title_of_source() -> str:
    """Return the title of the demonstration."""
    if are_flights_real():
        return "Dodona: a year of flights out of New York, 2013"
    return "Dodona: a year of made-up flights"


def note_of_source() -> str | None:
    """Return how to get the real flights; None if they are here."""
    if are_flights_real():
        return None
    return f"The real flights of 2013 are in the package {PACKAGE}: pip install 'dodona[demo]'"


def flights_table() -> Any:
    """Return all flights as a `pyarrow.Table` in the columns of `FLIGHT_COLUMNS`."""
    if are_flights_real():
        return demo_data.flights_table()
    return demo_made_up.made_up_flights(FLIGHT_COLUMNS)


def carrier_names() -> dict[str, str]:
    """Return airline names by carrier code."""
    return demo_data.carrier_names() if are_flights_real() else demo_made_up.made_up_names()


def write_flights_csv(folder: Path) -> Path:
    """Write `flights.csv` into a folder, for Spark, and return its path."""
    if are_flights_real():
        return demo_data.extract_csv(folder)
    from pyarrow import compute, csv, string, table

    flights = flights_table()
    names = flights.schema.names
    texts = {it: compute.fill_null(flights[it].cast(string()), MISSING) for it in names}
    path = folder / "flights.csv"
    with path.open("wb") as file:
        file.write(f"{','.join(names)}\n".encode())  # Arrow would put the names into quotes
        options = csv.WriteOptions(include_header=False, quoting_style="none")
        csv.write_csv(table(texts), file, options)
    return path
