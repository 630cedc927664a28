"""One transaction over more cells than the other back ends have."""

from conformance.backends import Simulated
from conformance.tables import PLAIN, read


def test_one_insert_commits_in_five_cells() -> None:
    backend = Simulated(cell_count=5)
    pivot_keys: list[list[int]] = [[], [100], [200], [300], [400]]
    backend.db.create_table("//t", PLAIN, pivot_keys=pivot_keys, mount=True)
    assert len({tablet.cell for tablet in backend.db.get_table("//t").tablets}) == 5
    rows = [{"k": key, "v": key} for key in range(50, 500, 100)]
    backend.db.insert_rows("//t", rows)
    assert read(backend.db, "//t") == rows
