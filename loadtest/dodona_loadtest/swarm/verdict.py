"""What a load test comes to: one text and one exit status, from its figures and the checkers. Pure.

Owns: the order of the text, and which of it makes a test fail. Nothing acknowledged is no success,
nor is one kind of operation that never was.
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
    """On one test."""

    title: str
    """The scenario and who asked, in words."""
    report: Report
    tally: Tally
    judgements: Sequence[Judgement]
    notes: Sequence[str] = ()
    """What a reader has to know besides."""

    @property
    def exit_code(self) -> int:
        """0: passed; 1: a promise or a limit was broken; 2: nothing was acknowledged."""
        if self.report.violations:
            return FAILED
        if not self.tally.acknowledged:
            return NOTHING_TO_JUDGE
        return PASSED if all(it.is_kept for it in self.judgements) else FAILED

    def lines(self) -> list[str]:
        """For a reader."""
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
