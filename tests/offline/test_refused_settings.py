"""Tests of offline/settings.py. Tests of offline/settings.py: a topic's setting in the metadata that nothing here can
read.
"""

import shutil
from pathlib import Path

import pytest
from helpers.internal_logs import write_log as write_internal
from helpers.shell import Done, pylogseg

from pylogseg.disk.small_files import read_partition_metadata
from pylogseg.env.filesystem import LocalFiles
from pylogseg.format.messages.framing import encode_framed

#: No Kafka 4.3 accepts these; an older or a newer one may.
REFUSED = {"leader.replication.throttled.replicas": "1:2,*", "compression.type": "brotli"}
#: Commands that do not ask for any of them.
COMMANDS = {
    "retain": ("txn-a", "--bytes", "5000"),
    "compact": ("txn-a", "-c", "cleanup.policy=compact"),
    "delete-records": ("--offset", "txn-a-0=100"),
    "truncate": ("txn-a-0", "--to", "100"),
    "redact": ("txn-a", "--key", "k1"),
    "reindex": ("txn-a",),
    "repair": ("txn-a",),
    "recover": (),
}


@pytest.fixture
def log_dir(examples: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(examples, tmp_path / "kafka"))


def run(log_dir: Path, command: str, settings: dict[str, str], *words: str) -> Done:
    topic_id = read_partition_metadata(LocalFiles(), str(log_dir / "txn-a-0")).value
    topic = encode_framed("TopicRecord", 0, {"name": "txn-a", "topicId": topic_id})
    config = {"resourceType": 2, "resourceName": "txn-a"}
    records = [encode_framed("ConfigRecord", 0, config | {"name": n, "value": v}) for n, v in settings.items()]
    metadata = log_dir.parent / "__cluster_metadata-0"
    write_internal(metadata, [(None, record) for record in (topic, *records)])
    return pylogseg(command, log_dir, *words, "--cluster-metadata", metadata, "--dry-run")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_setting_that_a_command_does_not_need(log_dir: Path, command: str) -> None:
    done = run(log_dir, command, REFUSED, *COMMANDS[command])
    assert done.code == 0, done.text + done.err
    assert "FAILED" not in done.text
    for name in REFUSED:
        assert f"invalid {name}=" in done.text + done.err


@pytest.mark.parametrize(
    ("command", "setting"),
    [("compact", "cleanup.policy"), ("retain", "cleanup.policy"), ("retain", "retention.ms")],
)
def test_a_setting_that_decides_what_is_deleted(log_dir: Path, command: str, setting: str) -> None:
    done = run(log_dir, command, {setting: "Delete"}, "txn-a")
    assert done.code != 0
    assert f"invalid {setting}='Delete'" in done.text + done.err
