"""The studies, by group: the story of each, its contenders, and its figures."""

from dodona_loadtest.harness.study import Study
from dodona_loadtest.studies import (
    bulk,
    cold,
    gateway,
    growth,
    idle,
    pauses,
    reads,
    replicas,
    restart,
    slow,
    spark,
    types,
    validation,
    yson,
    ytsaurus,
)

STUDIES: tuple[Study, ...] = (
    bulk.STUDY,
    reads.STUDY,
    growth.STUDY,
    restart.STUDY,
    pauses.LOOKUP_STUDY,
    pauses.COMMIT_STUDY,
    validation.STUDY,
)
SPARK_STUDIES: tuple[Study, ...] = (spark.STUDY,)
TYPE_STUDIES: tuple[Study, ...] = (types.STUDY,)
REPLICA_STUDIES: tuple[Study, ...] = (replicas.STUDY, cold.STUDY)
IDLE_STUDIES: tuple[Study, ...] = (idle.STUDY,)
CODEC_STUDIES: tuple[Study, ...] = (yson.STUDY,)
GATEWAY_STUDIES: tuple[Study, ...] = (gateway.STUDY, slow.STUDY, ytsaurus.STUDY)
