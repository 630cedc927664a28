"""The verdict on a load test: one text and one exit status, from figures and checkers. Pure.

Owns: the order of the text, and which parts make a test fail. A test without any acknowledged
operation is no success. Neither is one with a kind of operation that was never acknowledged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dodona_loadtest.live.run import VIOLATIONS_SHOWN_MAX, Report
from dodona_loadtest.swarm.tally import Judgement, Tally

PASSED: Final = 0
FAILED: Final = 1
NOTHING_TO_JUDGE: Final = 2
WORDS: Final = {PASSED: "PASSED", FAILED: "FAILED", NOTHING_TO_JUDGE: "NOTHING TO JUDGE"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one test."""

    title: str
    """The scenario and its callers, in words."""
    report: Report
    tally: Tally
    judgements: Sequence[Judgement]
    notes: Sequence[str] = ()
    """Other facts that a reader has to know."""

    @property
    def exit_code(self) -> int:
        """0: passed; 1: a promise or a limit was broken; 2: no operation was acknowledged."""
        if self.report.violations:
            return FAILED
        if not self.tally.acknowledged:
            return NOTHING_TO_JUDGE
        return PASSED if all(it.is_kept for it in self.judgements) else FAILED

    def lines(self) -> list[str]:
        """Return lines for a reader."""
        violations = self.report.violations
        checked = f"{self.report.history.record_count:,} records and {self.report.version_count:,}"
        verdict = [str(it) for it in violations[:VIOLATIONS_SHOWN_MAX]]
        verdict += [f"{len(violations)} violations"] if violations else ["no violation"]
        return [
            "",
            f"# {self.title}",
            "",
            *self.tally.lines(self.report.seconds),
            "",
            *(f"- {note}" for note in self.notes),
            *(f"- {judgement}" for judgement in self.judgements),
            f"- the checkers saw {checked} versions",
            "",
            *verdict,
            "",
            WORDS[self.exit_code],
        ]
