"""The study of replicas, once and small: it has all its figures, whatever they are."""

from pathlib import Path

import pytest

from dodona_loadtest.harness import rounds
from dodona_loadtest.harness.errors import ContenderMissing
from dodona_loadtest.harness.pinning import choose_pinning
from dodona_loadtest.harness.report import Report
from dodona_loadtest.harness.rounds import Plan
from dodona_loadtest.harness.study import Effort
from dodona_loadtest.harness.study_rounds import run_study
from dodona_loadtest.studies.replicas import PLAIN, REPLICATED, STUDY
from dodona_local import etcd_member
from suite.etcd import NEEDS_ETCD

ANYWHERE = choose_pinning("none")


@pytest.mark.integration
@NEEDS_ETCD
def test_both_clusters_give_each_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "REST_S", 0.0)
    plan = Plan(1, 0.01, 0.05, is_quick=True, pinning=ANYWHERE, scale=0.002)
    result = run_study(STUDY, plan, tmp_path, lambda text: None)
    assert result.dropped == {}
    for contender in (REPLICATED, PLAIN):
        for measure in STUDY.measures:
            finding = result.find(contender, measure.name)
            assert finding is not None, measure
            assert finding.value >= 0
    said = Report([], [result]).markdown()
    assert said.count("- goal, ") == len(STUDY.bounds)


def test_without_etcd_only_the_copies_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_member, "missing_program", lambda: "there is no etcd here")
    effort = Effort(0.01, 0.01, ANYWHERE.client, ANYWHERE.embedded)
    start = next(it.start for it in STUDY.performers if it.name == REPLICATED)
    with (
        pytest.raises(ContenderMissing, match="copies need etcd, and there is no etcd here"),
        start(tmp_path, effort),
    ):
        pass
