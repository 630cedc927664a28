"""Which names of attributes are mistaken for a setting, and which are warned of."""

import warnings

import pytest

from dodona._io.callers import warn_about
from dodona.errors import DodonaWarning
from dodona_wire.messages.attribute_names import (
    SETTINGS,
    WITHOUT_MEANING,
    meant,
    names_set,
    warnings_about,
)


@pytest.mark.parametrize("name", SETTINGS)
def test_one_wrong_letter_of_a_setting_is_noticed_at_any_place(name: str) -> None:
    for at in range(len(name)):
        for wrong in (name[:at] + name[at + 1 :], name[:at] + "q" + name[at + 1 :]):
            assert meant(wrong) in SETTINGS, wrong
    assert meant(name) is None
    assert meant(f"_{name[:-1]}") is None


@pytest.mark.parametrize("name", ["owner", "team", "data", "mode", "ttl", "a" * 5_000, ""])
def test_other_names_are_a_users_own(name: str) -> None:
    assert meant(name) is None


def test_attributes_of_ytsaurus_are_neither_settings_nor_misspelled_settings() -> None:
    assert not WITHOUT_MEANING & set(SETTINGS)
    assert all(meant(name) is None for name in WITHOUT_MEANING)


def test_each_name_without_meaning_is_named() -> None:
    said = warnings_about(["owner", "optimize_for", "min_data_ttl", "erasure_codec"])
    assert [text.split("'")[1] for text in said] == ["erasure_codec", "optimize_for"]
    with pytest.warns(DodonaWarning, match="erasure_codec"):
        warn_about(["erasure_codec"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_about(["owner", "min_data_ttl"])


@pytest.mark.parametrize(
    ("path", "value", "names"),
    [
        ("//t/@x", {"y": 1}, ["x"]),
        ("//t/@x/inside", 1, ["x"]),
        ("//t/@", {"x": 1, "y": 2}, ["x", "y"]),
        ("//t/@", 7, []),
        ("//t", {"x": 1}, []),
    ],
)
def test_the_attributes_that_setting_a_path_sets(
    path: str, value: object, names: list[str]
) -> None:
    assert names_set(path, value) == names
