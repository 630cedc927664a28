"""The pages of a node that stands by: its metrics.

Owns: these metrics, and who may read them. The thread of the listener calls, so this module reads
only what any thread may read. Only the first scrape imports prometheus-client.
Must not import: a web framework.
"""

from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NamedTuple

from dodona_replication.core.standby import StandbyReport
from dodona_server.answers import OK, Answer, AnswerLike, problem_answer
from dodona_server.lifecycle import METRICS
from dodona_server.metrics import MICROSECONDS, Metric, ServerReport, server_metrics
from dodona_wire.errors import DodonaError
from dodona_wire.messages.base import failure_of
from dodona_wire.net.callers import Header, check_program
from dodona_wire.net.cluster_key import Admission

if TYPE_CHECKING:
    from dodona_server.exposition import Metrics

STANDBY_METRICS: Final = (
    Metric("standby", "gauge", "Always 1: the node stands by", "is_standing_by"),
    Metric("standby_logs", "gauge", "Logs whose owners the node waits for", "standby.log_count"),
    Metric(
        "standby_logs_left_alone",
        "gauge",
        "Logs that the node could not take over, and leaves alone for a while",
        "standby.left_alone_count",
    ),
    Metric(
        "standby_replicas",
        "gauge",
        "Log replicas that answer the node",
        "standby.reachable_count",
    ),
    Metric(
        "standby_late_seconds",
        "gauge",
        "By how much longer the node waits for a silent owner, because it was woken late itself",
        "standby.late_us",
        per=MICROSECONDS,
    ),
)


class NodeStandbyReport(NamedTuple):
    """The values that the metrics are made of."""

    server: ServerReport
    standby: StandbyReport
    is_standing_by: int = 1


class StandbyPages:
    """The pages of one node while it stands by."""

    def __init__(
        self, cell: int | None, admission: Admission, report: Callable[[], StandbyReport]
    ) -> None:
        """`cell` is the node's own cell, if it has one."""
        self._server = ServerReport({version("dodona"): {str(cell): 1}}, 1, 0)
        self._admission = admission
        self._report = report
        self._metrics: Metrics | None = None

    def __call__(self, path: str, header: Header) -> AnswerLike | None:
        """Return the page at a path, or None if there is no such page."""
        if path != METRICS:
            return None
        try:
            self._check(header)
        except DodonaError as error:
            return problem_answer(failure_of(error))
        content, content_type = self._made().text(header("accept") or "")
        return Answer(OK, content_type, content)

    def _check(self, header: Header) -> None:
        """Admit the callers that the pages of a server admit. Raises DodonaError."""
        admission = self._admission
        check_program(header, is_open=admission.is_open)
        is_scrape = admission.metrics_key is not None
        if not admission.admits(header("authorization"), is_scrape=is_scrape):
            raise admission.refusal(header("host"))

    def _made(self) -> "Metrics":
        if self._metrics is None:
            from dodona_server.exposition import Metrics

            table = (*server_metrics("cell"), *STANDBY_METRICS)
            self._metrics = Metrics(
                "node", table, lambda: NodeStandbyReport(self._server, self._report())
            )
        return self._metrics
