"""Tests of inspect/verify/indexes.py. Directories of brokers from 0.10 to 4.0: whole ones are clean, and a harm that
misleads a look-up is found.

Such brokers write one index entry for each append, and 0.10 the times that a conversion dropped.
"""

from __future__ import annotations

import random
import shutil
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.depth import diagonals
from helpers.index_lookups import Lookups

import pylogseg
from pylogseg.cli import shell
from pylogseg.disk.listing import open_dir
from pylogseg.format.batches import scan
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Finding, Level

DIRECTORIES = (
    "kafka-0.10.2.2-killed/data",
    "kafka-2.8.2-stopped/data",
    "kafka-4.0.0-two-brokers/b1",
    "kafka-4.0.0-two-brokers/b2",
)


def check(path: Path) -> list[Finding]:
    return list(verify_disk(open_dir(path), VerifySummary(Level.INDEXES)))


def crc(data: bytes | None) -> str:
    return "-" if data is None else f"{zlib.crc32(data):08x}"


@pytest.mark.parametrize("name", DIRECTORIES)
def test_what_old_brokers_left_is_no_damage(golden: Path, name: str) -> None:
    """For `verify` and `report`, whose checks of indexes are the same."""
    folder = golden / "old" / name
    assert [finding for finding in check(folder) if finding.is_damage] == []
    facts = pylogseg.report(folder).facts
    assert [row for row in facts.findings if row["level"] == "damage"] == []


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", ["kafka-0.10.2.2-killed", "kafka-2.8.2-stopped"])
def test_records_are_those_that_the_brokers_consumer_got(golden: Path, name: str, isolation: str) -> None:
    """From the beginning, from any offset and from any time on."""
    said = golden / "old" / name / f"{isolation}.tsv"
    if not said.exists():
        pytest.skip("0.10 has no transactions")
    expected: dict[str, list[list[str]]] = {}
    for line in said.read_text().splitlines():
        partition, *values = line.split("\t")
        expected.setdefault(partition, []).append(values)
    disk, chance = open_dir(golden / "old" / name / "data"), random.Random(4)
    for partition, rows in expected.items():
        topic, _, number = partition.rpartition("-")
        got = [
            [str(r.offset), str(r.timestamp), crc(r.key), crc(r.value)]
            for r in pylogseg.read(disk, topic, int(number), isolation_level=isolation)
        ]
        assert got == rows, partition
        for offset in chance.sample(range(int(rows[-1][0]) + 1), 12):
            found = pylogseg.read(disk, topic, int(number), offset=offset, limit=1, isolation_level=isolation)
            assert [str(r.offset) for r in found] == [row[0] for row in rows if int(row[0]) >= offset][:1]
        for time in {int(row[1]) for row in chance.sample(rows, 6)} - {-1}:
            found = pylogseg.read(disk, topic, int(number), timestamp=(time, None), isolation_level=isolation)
            assert [str(r.offset) for r in found] == [row[0] for row in rows if int(row[1]) >= time]


# ---- look-ups as a broker makes them ----


@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("name", DIRECTORIES[:3])
def test_a_changed_entry_that_misleads_a_look_up_is_found(golden: Path, tmp_path: Path, name: str, kind: str) -> None:
    """Flip bits of entries, and put neighbours in their place; what misleads no look-up may be found or not."""
    chance = random.Random(11)
    of, width = (OffsetIndex, 8) if kind == "index" else (TimeIndex, 12)
    logs = []
    for log in sorted((golden / "old" / name).glob("[!_]*/*.log")):
        used = width * len(of(log.with_suffix(f".{kind}").read_bytes(), int(log.stem)))  # zeros follow after a kill
        if used > width and log.stat().st_size:
            logs.append((log, used))
    harmful = 0
    for log, used in chance.sample(logs, min(len(logs), 10)):
        folder = Path(shutil.copytree(log.parent, tmp_path / log.parent.name, dirs_exist_ok=True))
        base, path = int(log.stem), folder / f"{log.stem}.{kind}"
        lookups, whole = Lookups(log.read_bytes()), path.read_bytes()
        indexes = {k: (folder / f"{log.stem}.{k}").read_bytes() for k in ("index", "timeindex")}
        for _ in range(6):
            data = bytearray(whole)
            if chance.random() < 0.5:
                at = chance.randrange(0, used - width, width) + width - 4
                del data[at : at + width]  # one key, and the place of the next one
            else:
                data[chance.randrange(used)] ^= 1 << chance.randrange(8)
            both = indexes | {kind: bytes(data)}
            try:
                index, time_index = OffsetIndex(both["index"], base), TimeIndex(both["timeindex"], base)
                index.check_entries()
                time_index.check_entries()
            except pylogseg.CorruptionError:
                continue  # that is another check
            if lookups.are_misled(index, time_index):
                harmful += 1
                path.write_bytes(data)
                found = [finding for finding in check(folder) if finding.is_damage]
                assert [finding.path for finding in found] == [str(path)], found
        path.write_bytes(whole)
    assert harmful > 0


def test_an_entry_of_an_append_that_was_cut_short(golden: Path, tmp_path: Path) -> None:
    """A torn log is no damage of its index; where the log ends whole, the entry leads beyond it."""
    source = golden / "old" / DIRECTORIES[3] / "t-1"
    folder = Path(shutil.copytree(source, tmp_path / "t-1"))
    (log,), (path,) = folder.glob("*.log"), folder.glob("*.index")
    whole, index = log.read_bytes(), OffsetIndex(path.read_bytes(), 0)
    rows = scan(whole).batches
    lasts = dict(zip(rows.position.tolist(), rows.last_offset.tolist(), strict=True))
    slot = next(i for i in range(len(index)) if index[i].offset > lasts[index[i].position])
    path.write_bytes(path.read_bytes()[: 8 * slot + 8])
    cut = index[slot].position + int(rows.size[rows.position == index[slot].position][0])
    for times in folder.glob("*.timeindex"):
        times.write_bytes(b"")
    for size, expected in ((cut + 10, False), (cut, True)):
        log.write_bytes(whole[:size])
        found = {finding.kind for finding in check(folder) if finding.is_damage}
        assert "offset-index" in found if expected else "offset-index" not in found
    assert CliRunner().invoke(shell, ["verify", str(folder)]).exit_code == 1


# ---- each command that writes ----

#: Of each generation a partition or two; what `read` gives afterwards has to be as before, but for those that delete.
PARTITIONS = {
    "kafka-0.10.2.2-killed/data": ("g0_10_0-gzip-0", "g0_8_2-none-0", "gcmp0_10_2-0"),
    "kafka-2.8.2-stopped/data": ("f0_8_0-none-0", "cmp0_9_0-0", "tx-0"),
    "kafka-4.0.0-two-brokers/b2": ("t-1",),
}
COMMANDS = {
    "compact": ["--include-active", "-c", "cleanup.policy=compact"],
    "retain": ["--bytes", "20000"],
    "delete-records": ["--offset", "60"],
    "redact": ["--key", "k3"],
    "recode": ["--compression", "lz4"],
    "truncate": ["--to", "90"],
    "reindex": [],
    "recover": ["--full"],
    "repair": [],
    "copy": [],
}
KEEPS_ALL = ("recode", "reindex", "recover", "repair", "copy")


def records(disk: Path, partition: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    topic, _, number = partition.rpartition("-")
    return [(r.offset, r.timestamp, r.key, r.value) for r in pylogseg.read(disk, topic, int(number))]


@pytest.mark.parametrize(("name", "command"), diagonals(PARTITIONS, COMMANDS, 2))
def test_no_command_leaves_damage_in_an_old_log(golden: Path, tmp_path: Path, name: str, command: str) -> None:
    source, disk = golden / "old" / name, tmp_path / "disk"
    disk.mkdir()
    for partition in PARTITIONS[name]:
        shutil.copytree(source / partition, disk / partition)
    for file in source.iterdir():
        if file.is_file() and (len(PARTITIONS[name]) > 1 or file.name == "meta.properties"):
            shutil.copy(file, disk)  # the checkpoints name these partitions
    before = {partition: records(disk, partition) for partition in PARTITIONS[name]}
    target = tmp_path / "copy" if command == "copy" else disk
    for partition in ["copy"] if command == "copy" else PARTITIONS[name]:
        place = [str(disk), str(target)] if command == "copy" else [str(disk / partition)]
        done = CliRunner().invoke(shell, [command, *place, *COMMANDS[command]])
        assert done.exit_code == 0, done.output
    assert [finding for finding in check(target) if finding.is_damage] == []
    for partition, rows in before.items():
        now = records(target, partition)
        assert now == rows if command in KEEPS_ALL else set(now) <= set(rows)
