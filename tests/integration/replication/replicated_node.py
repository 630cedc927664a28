"""A tablet node whose log has copies on log replicas, in a node's place.

Owns: what the product's commands do not offer yet. The words are those of a node. The environment
has the URLs: `DODONA_TEST_ETCD` of etcd, `DODONA_TEST_REPLICAS` of the replicas, and
`DODONA_TEST_OBJECTS` of the object store. If it has `DODONA_TEST_FORGET`, each start finds an empty
folder, as on another machine.
"""

import os
import shutil
import sys

from dodona_server.early_stop import end_on_sigterm

if __name__ == "__main__":
    end_on_sigterm()

from dodona_replication.shell.coordinator import Coordinator
from dodona_server.serving import run_process
from dodona_tablets.shell.replicated_log import Replication
from dodona_tablets.shell.replicated_node import run_replicated_node
from dodona_tablets.shell.settings import NodeSettings

CLUSTER = "home"


async def open_coordinator() -> Coordinator:
    from dodona_replication.shell.etcd import EtcdCoordinator
    from dodona_replication.shell.etcd_options import EtcdOptions

    return EtcdCoordinator(EtcdOptions((os.environ["DODONA_TEST_ETCD"],), CLUSTER))


def run(settings: NodeSettings) -> None:
    if "DODONA_TEST_FORGET" in os.environ:
        shutil.rmtree(settings.data_dir, ignore_errors=True)
    replicas = tuple(os.environ["DODONA_TEST_REPLICAS"].split())
    objects = os.environ["DODONA_TEST_OBJECTS"]
    run_replicated_node(settings, Replication(CLUSTER, replicas, objects, open_coordinator))


if __name__ == "__main__":
    run_process(NodeSettings, run, "replicated_node", sys.argv[1:])
