"""A drill's whole cluster: one controller of its own, and one broker that takes over the partitions of all."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from pylogseg.archive.kafka_home import StartedKafka, cluster_over, free_ports
from pylogseg.archive.whole_cluster.command import RestoredCluster, restore_cluster


@dataclass
class ClusterTrial:
    """A whole cluster in a folder, made of a point, and started by the lines that the steps of the restore name."""

    home: str  #: Of Kafka.
    url: str  #: Of the point.
    broker_ids: list[int]  #: Of the cluster at the point.
    folder: str
    port: int = field(default_factory=lambda: free_ports()[0])  #: The controller's.

    @property
    def log_dir(self) -> str:
        """The broker's log directory."""
        return os.path.join(self.folder, "broker")

    @property
    def controller_id(self) -> int:
        """A number that no broker has."""
        return max(self.broker_ids, default=0) + 1

    def restore(self, **how: Any) -> RestoredCluster:
        """Make the log directories of both."""
        controllers = {f"{self.controller_id}@127.0.0.1:{self.port}": os.path.join(self.folder, "controller")}
        return restore_cluster(self.url, controllers=controllers, brokers={self.broker_ids[0]: [self.log_dir]}, **how)

    def run(self, restored: RestoredCluster) -> AbstractContextManager[StartedKafka]:
        """Start controllers and brokers by the printed commands, and stop them at the end."""
        lines = {step.node_id: step.settings for step in restored.steps if step.settings}
        logs = os.path.join(self.folder, "logs")
        os.mkdir(logs)
        return cluster_over(self.home, lines[self.controller_id], self.port, lines[self.broker_ids[0]], logs)
