"""Tests of format/names.py. Names of folders and files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import RequestError
from pylogseg.format.names import (
    FileKind,
    FileName,
    PartitionFolder,
    check_topic,
    parse_file_name,
    parse_partition_folder,
    partition_folder_name,
    segment_file_name,
)

HEX = "0123456789abcdef0123456789abcdef"
SEGMENT_KINDS = [kind for kind in FileKind if kind.is_segment_file]
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.log", FileName(FileKind.LOG, 0)),
        ("00000000000000000042.index", FileName(FileKind.OFFSET_INDEX, 42)),
        ("00000000000000000042.timeindex.swap", FileName(FileKind.TIME_INDEX, 42, None, ".swap")),
        ("00000000000000000042.txnindex.cleaned", FileName(FileKind.TXN_INDEX, 42, None, ".cleaned")),
        ("00000000000000000042.snapshot.deleted", FileName(FileKind.PRODUCER_SNAPSHOT, 42, None, ".deleted")),
        ("09223372036854775807.log", FileName(FileKind.LOG, 2**63 - 1)),
        ("42.log", FileName(FileKind.LOG, 42)),
        ("00000000000001725413-0000000027.checkpoint", FileName(FileKind.KRAFT_SNAPSHOT, 1725413, 27)),
        ("00000000000001725413-0000000027.checkpoint.part", FileName(FileKind.KRAFT_SNAPSHOT, 1725413, 27, ".part")),
        (
            "00000000000001725413-0000000027.checkpoint.deleted",
            FileName(FileKind.KRAFT_SNAPSHOT, 1725413, 27, ".deleted"),
        ),
        ("bootstrap.checkpoint", FileName(FileKind.KRAFT_SNAPSHOT)),
        ("leader-epoch-checkpoint", FileName(FileKind.LEADER_EPOCHS)),
        ("leader-epoch-checkpoint.tmp", FileName(FileKind.LEADER_EPOCHS, suffix=".tmp")),
        ("partition.metadata", FileName(FileKind.PARTITION_METADATA)),
        ("quorum-state", FileName(FileKind.QUORUM_STATE)),
        ("recovery-point-offset-checkpoint", FileName(FileKind.RECOVERY_POINTS)),
        ("log-start-offset-checkpoint", FileName(FileKind.LOG_STARTS)),
        ("replication-offset-checkpoint", FileName(FileKind.HIGH_WATERMARKS)),
        ("cleaner-offset-checkpoint", FileName(FileKind.CLEANER_OFFSETS)),
        ("meta.properties", FileName(FileKind.META_PROPERTIES)),
        (".kafka_cleanshutdown", FileName(FileKind.CLEAN_SHUTDOWN)),
        (".lock", FileName(FileKind.LOCK)),
    ],
)
def test_file_names(name: str, expected: FileName) -> None:
    assert parse_file_name(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".log",
        "x.log",
        "1.log.txt",
        "1.log.swap.deleted",
        "-1.log",
        "1_2.log",
        "09223372036854775808.log",
        "9" * 5000 + ".log",
        "00000000000000000001-1.checkpoint",
        "00000000000000000001-9999999999.checkpoint",
        "00000000000000000001-0000000001.checkpoint.swap",
        "README",
        "server.log",
        "\u0661.log",
        "1.log\n",
    ],
)
def test_other_file_names(name: str) -> None:
    assert parse_file_name(name) == FileName(FileKind.UNKNOWN)
    assert not parse_file_name(name).is_live


def test_what_kinds_are() -> None:
    assert [kind.name for kind in FileKind if kind.is_index] == ["OFFSET_INDEX", "TIME_INDEX", "TXN_INDEX"]
    assert [kind.name for kind in FileKind if kind.holds_batches] == ["LOG", "KRAFT_SNAPSHOT"]
    assert sum(kind.is_offset_checkpoint for kind in FileKind) == 4
    assert len(SEGMENT_KINDS) == 5
    assert parse_file_name("1.log").is_live
    assert not parse_file_name("1.log.deleted").is_live


@given(
    st.integers(0, 2**63 - 1), st.sampled_from(SEGMENT_KINDS), st.sampled_from(["", ".deleted", ".cleaned", ".swap"])
)
def test_segment_files_round_trip(offset: int, kind: FileKind, suffix: str) -> None:
    name = segment_file_name(offset, kind, suffix)
    assert len(name.split(".")[0]) == 20
    assert parse_file_name(name) == FileName(kind, offset, None, suffix)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.sampled_from(["", ".part", ".deleted"]))
def test_kraft_snapshots(offset: int, epoch: int, suffix: str) -> None:
    name = f"{offset:020d}-{epoch:010d}.checkpoint{suffix}"
    assert parse_file_name(name) == FileName(FileKind.KRAFT_SNAPSHOT, offset, epoch, suffix)


def test_files_that_cannot_be() -> None:
    for offset, kind, suffix in [
        (-1, FileKind.LOG, ""),
        (2**63, FileKind.LOG, ""),
        (0, FileKind.LOCK, ""),
        (0, FileKind.LOG, ".x"),
    ]:
        with pytest.raises(RequestError):
            segment_file_name(offset, kind, suffix)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-3", PartitionFolder("orders", 3)),
        ("a-b-c-0", PartitionFolder("a-b-c", 0)),
        ("Name.with_dots-and-2-11", PartitionFolder("Name.with_dots-and-2", 11)),
        ("__cluster_metadata-0", PartitionFolder("__cluster_metadata", 0)),
        ("topic--1", PartitionFolder("topic-", 1)),
        (f"orders-3.{HEX}-delete", PartitionFolder("orders", 3, "delete", HEX)),
        (f"orders-3.{HEX}-future", PartitionFolder("orders", 3, "future", HEX)),
        (f"a.b-3.{HEX}-stray", PartitionFolder("a.b", 3, "stray", HEX)),
        ("orders-delete-3", PartitionFolder("orders-delete", 3)),
    ],
)
def test_folders(name: str, expected: PartitionFolder) -> None:
    assert parse_partition_folder(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        *("", "-", "orders", "orders-", "-3", "orders-x", "orders-3-delete", "orders.3-delete", "orders-3.-delete"),
        *(f"orders.{HEX}-stray", "a b-3.x-delete", "remote-log-index-cache"),
        *("orders-2147483648", "orders-" + "9" * 5000, "orders-\u0663"),
    ],
)
def test_other_folders(name: str) -> None:
    assert parse_partition_folder(name) is None


@given(topics, st.integers(0, 2**31 - 1), st.sampled_from(["", "delete", "future", "stray"]))
def test_folders_round_trip(topic: str, partition: int, state: str) -> None:
    unique_id = HEX if state else ""
    name = partition_folder_name(topic, partition, state, unique_id)
    parsed = parse_partition_folder(name)
    assert parsed is not None
    assert parsed[1:] == (partition, state, unique_id)
    if state in ("delete", "stray"):
        assert len(name) <= 255
        assert topic.startswith(parsed.topic)
        assert parsed.topic == topic or len(name) == 255
    else:
        assert parsed.topic == topic


def test_the_longest_topic() -> None:
    topic = "t" * 249
    assert len(partition_folder_name(topic, 12, "delete", HEX)) == 255
    assert len(partition_folder_name(topic, 12, "future", HEX)) == 249 + len(f"-12.{HEX}-future")


def test_folders_that_cannot_be() -> None:
    for topic in ["", ".", "..", "a b", "t" * 250, "a/b", "\u00e4", "a\n"]:
        with pytest.raises(RequestError):
            check_topic(topic)
        with pytest.raises(RequestError):
            partition_folder_name(topic, 0)
    for partition, state, unique_id in [
        (-1, "", ""),
        (2**31, "", ""),
        (0, "old", HEX),
        (0, "delete", "x"),
        (0, "delete", ""),
    ]:
        with pytest.raises(RequestError):
            partition_folder_name("t", partition, state, unique_id)


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_not(text: str) -> None:
    parse_file_name(text)
    parse_partition_folder(text)
