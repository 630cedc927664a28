"""`kill -9` of every role under workloads: a short campaign, and proof that it would see a fault.

Owns: the short form of `python -m dodona_loadtest.kills`.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dodona_loadtest import kills
from dodona_loadtest.chaos.campaign import CampaignPlan, run_campaign
from dodona_loadtest.chaos.faults import role_of
from dodona_local.supervisor import Plan

pytestmark = [
    pytest.mark.integration,
    pytest.mark.alone,  # between two kills there must be time to commit something
]

COMMITTED_MIN = 20
KILLS = 12
COMMAND = ["--kills", str(KILLS), "--seed", "6", "--pace-ms", "600"]
"""A seed that hits every role within its first ten kills."""


@pytest.mark.part("kill -9 of every role under load")
def test_acknowledged_commits_survive_kills_of_every_role(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = tmp_path / "section.md"
    folder = tmp_path / "work"
    folder.mkdir()
    status = kills.main([*COMMAND, "--markdown", str(section), "--folder", str(folder)])
    said = capsys.readouterr().out
    assert status == 0, said
    assert "\n0 violations" in said
    by_role = re.search(r"(\d+) kills: (\d+) master, (\d+) proxy, (\d+) node, (\d+) client", said)
    assert by_role is not None, said
    total, *each = map(int, by_role.groups())
    assert total == sum(each) >= KILLS
    assert all(each)
    committed = re.search(r"^(\d+) committed", said, re.MULTILINE)
    assert committed is not None, said
    assert int(committed.group(1)) >= COMMITTED_MIN
    command = f"python -m dodona_loadtest.kills --kills {KILLS} --seed 6"
    assert f"`{command}`" in section.read_text("utf-8")
    assert list(folder.iterdir()) == []


def forgetful(plans: list[Plan]) -> list[Plan]:
    module = "integration.forgetful_node"
    return [replace(it, module=module) if role_of(it.name) == "node" else it for it in plans]


def test_the_kill_campaign_detects_a_node_that_answers_before_a_write_is_durable(
    tmp_path: Path,
) -> None:
    plan = CampaignPlan(kills=2, seed=6)
    summary = run_campaign(plan, tmp_path, print, arrange=forgetful)
    assert "DURABILITY" in {violation.promise for violation in summary.violations}
