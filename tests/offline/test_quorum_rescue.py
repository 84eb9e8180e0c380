"""Tests of offline/rescuing/command.py, offline/rescuing/plan.py, offline/rescuing/steps.py and
offline/rescuing/writing.py. `pylogseg quorum rescue`: controllers of the longest copy, and all that it refuses.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import change_byte
from helpers.metadata_logs import CLUSTER, DIRECTORIES, LOG, MetadataLog
from helpers.shell import locked, pylogseg

from pylogseg import offline
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties, parse_meta_properties
from pylogseg.format.files.status import QuorumState, parse_quorum_state
from pylogseg.inspect.quorum.copies import Voter, read_copies
from pylogseg.inspect.quorum.pairs import changes_between, compare_copies
from pylogseg.offline.rescuing import writing
from pylogseg.offline.rescuing.command import QuorumRescue
from pylogseg.values.internal.image import Image

C1 = "1@c1:9093"
THREE = [f"{number}@new{number}:9093" for number in (1, 2, 3)]


def rescue(*paths: Path, **options: Any) -> QuorumRescue:
    into = [str(path) for path in options.pop("into", ())]
    for name in ("in_place", "keep"):
        if name in options:
            options[name] = str(options[name])
    return offline.rescue_quorum([str(path) for path in paths], into=into, **options)


def tree(path: Path) -> dict[str, bytes]:
    """The files of a folder, but for the lock."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*"))
            if file.is_file() and file.name != ".lock"}  # fmt: skip


@pytest.fixture
def log() -> MetadataLog:
    log = MetadataLog()
    log.topic("orders", 3)
    log.leader(2)
    log.topic("late")
    return log


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_three_new_controllers_have_the_same_bytes(log: MetadataLog, tmp_path: Path, is_trimmed: bool) -> None:
    at = log.batches[4].next_offset
    b11 = log.disk(tmp_path / "b11", 11, start=at if is_trimmed else 0, roll=[log.batches[6].offset])
    b12 = log.disk(tmp_path / "b12", 12, end=log.batches[-2].next_offset)
    if is_trimmed:
        log.snapshot(b11, at)
    folders = [tmp_path / f"new{number}" for number in (1, 2, 3)]
    before = tree(tmp_path)
    dry = rescue(b12, b11, into=folders, voters=THREE)
    assert tree(tmp_path) == before
    assert not dry.is_written
    done = rescue(b12, b11, into=folders, voters=THREE, write=True)
    assert {name: data for name, data in tree(tmp_path).items() if name in before} == before
    assert (done.plan.epoch, done.plan.end, done.exit_code) == (log.epoch + 1000, log.end + 2, 0)
    logs = [tree(folder / LOG) for folder in folders]
    assert logs[0] == logs[1] == logs[2]
    for number, folder in enumerate(folders, 1):
        (copy,) = read_copies(str(folder))
        assert copy.is_whole
        assert (copy.end, copy.epoch, copy.node_id, copy.cluster_id) == (log.end + 2, log.epoch + 1000, number, CLUSTER)
        assert copy.voters == done.plan.voters
        assert copy.voters is not None
        assert copy.directory_id == copy.voters[number - 1].directory_id
        assert copy.voters[number - 1].endpoints == (("CONTROLLER", f"new{number}", 9093),)
        assert compare_copies(copy, read_copies(str(b11))[0]).is_prefix
        assert copy.state == QuorumState(1, -1, copy.epoch or 0, -1, "AAAAAAAAAAAAAAAAAAAAAA", ())
        assert copy.partition is not None
        states = Image.read(copy.partition, log.end), Image.read(str(b11 / LOG))
        assert not list(changes_between(*states))
    assert len({voter.directory_id for voter in done.plan.voters}) == 3
    assert pylogseg("verify", folders[0]).code == 0
    for controller, folder in zip(dry.plan.controllers, folders, strict=True):  # the dry run shows each byte
        files = tree(folder)
        assert {file.name for file in controller.files} == files.keys()
        for file in controller.files:
            source = Path(file.source).read_bytes()[: file.copied] if file.source else b""
            assert files[file.name] == source + file.added


@pytest.mark.parametrize("torn", ["nothing", "a part of a batch", "zeros"])
def test_in_place(log: MetadataLog, tmp_path: Path, torn: str) -> None:
    after = log.fork()
    after.topic("torn")
    tail = {"nothing": b"", "a part of a batch": after.batches[-1].data[:99], "zeros": bytes(4096)}[torn]
    c1 = log.disk(tmp_path / "c1", 1, state=QuorumState(1, 2, 40, 1, DIRECTORIES[1]))
    others = [log.disk(tmp_path / "b11", 11), log.disk(tmp_path / "b12", 12, end=log.batches[-2].next_offset)]
    (c1 / "orders-0").mkdir()  # of a node of both roles
    (c1 / "orders-0" / f"{0:020d}.log").write_bytes(b"left alone")
    (c1 / ".kafka_cleanshutdown").write_bytes(b"{}")
    segment = c1 / LOG / f"{0:020d}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole + tail)
    before = tree(c1)
    done = rescue(*others, c1, in_place=c1, keep=tmp_path / "kept", voters=[C1], write=True)
    left = tree(c1)
    name = f"{LOG}/{0:020d}.log"
    assert left[name] == whole + done.plan.records
    assert parse_quorum_state(left[f"{LOG}/quorum-state"]).leader_epoch == done.plan.epoch == 1040
    assert {path for path in before if left[path] != before[path]} == {name, f"{LOG}/quorum-state"}
    assert left.keys() == before.keys()
    kept = tree(tmp_path / "kept")
    assert kept == {path: data for path, data in before.items() if path.startswith(LOG) or path == "meta.properties"}
    (copy,) = read_copies(str(c1))
    assert copy.voters == (Voter(1, DIRECTORIES[1], (("CONTROLLER", "c1", 9093),)),)
    assert done.look.best is not None


def test_a_second_rescue_takes_a_higher_epoch(log: MetadataLog, tmp_path: Path) -> None:
    c1, b11, b12 = (log.disk(tmp_path / name, number) for name, number in (("c1", 1), ("b11", 11), ("b12", 12)))
    options: dict[str, Any] = {"in_place": c1, "voters": [C1], "write": True}
    first = rescue(c1, b11, b12, keep=tmp_path / "k1", **options)
    with pytest.raises(RequestError, match="the quorum starts without a rescue"):
        rescue(c1, b11, b12, keep=tmp_path / "k2", **options)
    second = rescue(c1, b11, b12, keep=tmp_path / "k2", force=True, **options)
    assert second.plan.epoch == first.plan.epoch + 1000


def test_a_static_quorum(tmp_path: Path) -> None:
    log = MetadataLog(static=True)
    log.topic("orders")
    c1, b11, b12 = (log.disk(tmp_path / name, number) for name, number in (("c1", 1), ("b11", 11), ("b12", 12)))
    before = tree(c1)
    done = rescue(c1, b11, b12, in_place=c1, keep=tmp_path / "kept", voters=[C1], write=True)
    after = tree(c1)
    assert {path for path in before if after[path] != before[path]} == {f"{LOG}/quorum-state"}
    assert parse_quorum_state(after[f"{LOG}/quorum-state"]) == QuorumState(0, -1, done.plan.epoch, -1, None, (1,), "")
    text = "\n".join(str(line) for line in done.lines())
    assert "controller.quorum.voters=1@c1:9093" in text
    new = [tmp_path / f"new{number}" for number in (1, 2, 3)]
    done = rescue(b11, b12, into=new, voters=THREE, write=True)
    assert {folder.name: read_copies(str(folder))[0].end for folder in new} == {folder.name: log.end for folder in new}
    state = parse_quorum_state((new[0] / LOG / "quorum-state").read_bytes())
    assert (state.version, state.voters, state.leader_epoch) == (0, (1, 2, 3), done.plan.epoch)
    with pytest.raises(RequestError, match="static quorum"):
        rescue(b11, b12, into=[tmp_path / "x"], rename={"c1:9093": "n1:9093"})


def test_a_snapshot_above_the_log(log: MetadataLog, tmp_path: Path) -> None:
    b11 = log.disk(tmp_path / "b11", 11, end=log.batches[3].next_offset)
    log.snapshot(b11, log.end)
    rescue(b11, into=[tmp_path / "new"], voters=[C1], write=True)
    (copy,) = read_copies(str(tmp_path / "new"))
    assert (copy.start, copy.end) == (log.end, log.end + 2)
    assert [path.name for path in sorted((tmp_path / "new" / LOG).glob("*.log"))] == [f"{log.end:020d}.log"]


def test_addresses_that_moved(log: MetadataLog, tmp_path: Path) -> None:
    disks = [log.disk(tmp_path / f"n{number}", number) for number in (1, 2, 3, 11, 12)]
    new = [tmp_path / f"new{number}" for number in (1, 2, 3)]
    with pytest.raises(RequestError, match=r"no voter has this address: they have c1:9093, c2:9093, c3:9093"):
        rescue(*disks, into=new, rename={"c9:9093": "n9:9093"})
    done = rescue(*disks, into=new, rename={"c1:9093": "d1:9093", "c3:9093": "[::1]:9094"}, write=True)
    addresses = [(voter.id, voter.address) for voter in done.plan.voters]
    assert addresses == [(1, "d1:9093"), (2, "c2:9093"), (3, "[::1]:9094")]
    assert parse_meta_properties((new[2] / "meta.properties").read_bytes()).node_id == 3


def test_an_unreadable_disk_is_refused_unless_it_is_named(log: MetadataLog, tmp_path: Path) -> None:
    c1, b11, b12 = (log.disk(tmp_path / name, number) for name, number in (("c1", 1), ("b11", 11), ("b12", 12)))
    change_byte(b12 / LOG / f"{0:020d}.log", 300)
    options: dict[str, Any] = {"in_place": c1, "keep": tmp_path / "kept", "voters": [C1]}
    with pytest.raises(RequestError, match=r"a copy is unknown, neither longer nor shorter.*--without"):
        rescue(c1, b11, b12, **options, write=True)
    with pytest.raises(RequestError, match="not one of the disks that cannot be read"):
        rescue(c1, b11, b12, without=[str(b11)], **options)
    done = rescue(c1, b11, b12, without=[str(b12)], **options, write=True)
    assert done.exit_code == 1
    assert any("left out; it may have more" in line for line in done.warnings())


REFUSALS = {
    "shorter": (["c1", "b11"], {"in_place": "c1", "voters": [C1]}, r"shorter than the one of .*b11.*lacks topic: late"),
    "another node": (["c1e", "b11"], {"in_place": "c1e", "voters": ["2@c2:9093"]}, "its node is 1, not 2"),
    "not given": (["b11"], {"in_place": "c1", "voters": [C1]}, "not one of the disks"),
    "three in place": (["c1e"], {"in_place": "c1e", "voters": THREE}, "--in-place makes one controller"),
    "two voters": (["b11"], {"into": ["x", "y"], "voters": THREE[:2]}, "one, three or five"),
    "fewer folders": (["b11"], {"into": ["x"], "voters": THREE}, "3 voters and 1 folders"),
    "no folder": (["b11"], {"voters": [C1]}, "say where"),
    "no voter": (["b11"], {"into": ["x"]}, "name the new voters"),
    "one id twice": (["b11"], {"into": ["x", "y", "z"], "voters": [*THREE[:2], "2@n:1"]}, "the id 2 stands in several"),
    "one folder twice": (["b11"], {"into": ["x", "x", "z"], "voters": THREE}, "cannot have one folder"),
    "a broker's id": (["b11"], {"into": ["x"], "voters": ["12@n:9093"]}, "the id of a broker"),
    "no port": (["b11"], {"into": ["x"], "voters": ["1@n"]}, "expected ID@HOST:PORT"),
    "inside": (["b11"], {"into": ["b11/new"], "voters": [C1]}, "lies in"),
    "kept inside": (["c1e"], {"in_place": "c1e", "keep": "c1e/kept", "voters": [C1]}, "a disk of a node"),
    "taken": (["b11"], {"into": ["b12"], "voters": [C1]}, "expected an empty folder"),
    "no cluster": (["lost"], {"into": ["x"], "voters": [C1]}, "does not say the cluster"),
    "nothing whole": (["absent"], {"into": ["x"], "voters": [C1]}, "no metadata log here"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_refusals(log: MetadataLog, tmp_path: Path, why: str) -> None:
    names, options, text = REFUSALS[why]
    log.disk(tmp_path / "c1", 1, end=log.batches[-2].next_offset)
    log.disk(tmp_path / "c1e", 1)
    for name, number in (("b11", 11), ("b12", 12), ("lost", 12)):
        log.disk(tmp_path / name, number)
    (tmp_path / "lost" / "meta.properties").unlink()
    (tmp_path / "absent" / "t-0").mkdir(parents=True)
    meta = MetaProperties(1, CLUSTER, 11, DIRECTORIES[9])
    (tmp_path / "absent" / "meta.properties").write_bytes(encode_meta_properties(meta, "test"))
    before = tree(tmp_path)
    given: dict[str, Any] = {**options, "into": [tmp_path / name for name in options.get("into", ())], "write": True}
    if "in_place" in given:
        given |= {"in_place": tmp_path / given["in_place"], "keep": tmp_path / given.get("keep", "kept")}
    with pytest.raises(RequestError, match=text):
        rescue(*(tmp_path / name for name in names), **given)
    assert tree(tmp_path) == before


def test_a_controller_that_runs_is_refused_and_a_broker_is_not(log: MetadataLog, tmp_path: Path) -> None:
    c1, b11, b12 = (log.disk(tmp_path / name, number) for name, number in (("c1", 1), ("b11", 11), ("b12", 12)))
    with locked(c1), pytest.raises(RequestError, match="a controller runs"):
        rescue(c1, b11, b12, into=[tmp_path / "new"], voters=[C1], write=True)
    with locked(b11):
        rescue(c1, b11, b12, into=[tmp_path / "new"], voters=[C1], write=True)


def test_a_log_that_grows_meanwhile(log: MetadataLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    b11 = log.disk(tmp_path / "b11", 11)

    def grow(*arguments: Any) -> None:
        write(*arguments)
        log.topic("more")
        with open(b11 / LOG / f"{0:020d}.log", "ab") as file:
            file.write(log.batches[-1].data)

    write = writing._write
    monkeypatch.setattr(writing, "_write", grow)
    with pytest.raises(StorageError, match="its log changed while it was read"):
        rescue(b11, into=[tmp_path / "new"], voters=[C1], write=True)
    assert [path.name for path in tmp_path.iterdir()] == ["b11"]


def test_no_directory_id_begins_with_a_hyphen(log: MetadataLog, tmp_path: Path) -> None:
    b11 = log.disk(tmp_path / "b11", 11)
    ids = [
        rescue(b11, into=[tmp_path / "new"], voters=[f"1@c1:{port}"]).plan.voters[0].directory_id
        for port in range(1, 200)
    ]
    assert len(set(ids)) == len(ids)
    assert not any(text.startswith("-") for text in ids)


def test_the_steps(log: MetadataLog, tmp_path: Path) -> None:
    """In their order, with the names of the cluster; tests/kafka/broker/quorums.py follows them with a real one."""
    c1, c2 = log.disk(tmp_path / "c1", 1), log.disk(tmp_path / "c2", 2, end=log.batches[-2].next_offset)
    b11, b12 = log.disk(tmp_path / "b11", 11), log.disk(tmp_path / "b12", 12)
    done = pylogseg("quorum", "rescue", c1, b11, b12, "--in-place", c1, "--keep", tmp_path / "kept", "--voter", C1)
    assert done.code == 0, done.err
    lines = [re.sub(r"^\d+\. ", "", line) for line in done.text.splitlines() if re.match(r"\d+\. ", line)]
    begin = [" ".join(line.split()[:4]) for line in lines]
    assert begin == [
        "Stop controller 1 (c1:9093),", "Stop controller 2 (c2:9093),", "Stop controller 3 (c3:9093),",
        "If the disk of", "If the disk of", "On node 1, set", "Start node 1.", "Look at the quorum:",
        "On broker 11, set", "On broker 12, set", "When the quorum has", "When `describe --replication` shows",
        "When the quorum has", "When `describe --replication` shows", "When all are voters,",
        "Clients see this: requests",
    ]  # fmt: skip
    commands = [line.strip() for line in done.text.splitlines() if line.startswith("     ")]
    assert "controller.quorum.bootstrap.servers=c1:9093" in commands
    assert "controller.quorum.bootstrap.servers=c1:9093,c2:9093,c3:9093" in commands
    (gone, *_) = (line for line in lines if "controller 2 comes back" in line)
    assert "remove __cluster_metadata-0, meta.properties, bootstrap.checkpoint" in " ".join(done.text.split()), gone
    options = f"--cluster-id {CLUSTER} --no-initial-controllers --config config/server.properties"
    assert f"$ bin/kafka-storage.sh format {options}" in commands
    assert done.text.splitlines()[-1] == "dry run, nothing was written: the same command with --write does it"
    wiped = pylogseg("quorum", "rescue", c1, c2, b11, b12, "--in-place", c1, "--voter", C1, "--force", "--json")
    (row,) = wiped.rows
    commands = [line for step in row["steps"] for line in step["commands"]]
    assert any(line.startswith(f"rm -rf {c2}/{LOG} ") for line in commands)
    assert not any(str(c1) in line for line in commands)


def test_nodes_of_both_roles_in_a_static_quorum(tmp_path: Path) -> None:
    """In place, the other nodes wait: no controller starts that is not a voter. Then they are voters again."""
    log = MetadataLog(static=True)
    log.both_roles(1, 2, 3)
    one = log.disk(tmp_path / "one", 1)
    done = rescue(one, in_place=one, keep=tmp_path / "kept", voters=[C1], write=True)
    texts = [step.text for step in done.steps]
    for number in (2, 3):
        assert any(text.startswith(f"Leave node {number} ") and "both roles" in text for text in texts)
        assert not any(text.startswith(f"On broker {number}") for text in texts)
    grown = rescue(one, into=[tmp_path / f"new{number}" for number in (1, 2, 3)], voters=THREE, write=True)
    assert all(controller.has_both_roles for controller in grown.plan.controllers)
    assert any(f"metadata.log.dir={tmp_path / 'new2'}" in step.settings for step in grown.steps)
    with pytest.raises(RequestError, match="this is the id of a broker"):
        rescue(one, into=[tmp_path / "x"], voters=["11@c11:9093"])


def test_a_broker_whose_disk_was_not_given_is_named(log: MetadataLog, tmp_path: Path) -> None:
    c1, b11 = log.disk(tmp_path / "c1", 1), log.disk(tmp_path / "b11", 11)
    command = ("quorum", "rescue", c1, "--into", tmp_path / "x", "--voter", C1)
    done = pylogseg(*command)
    assert (done.code, "no broker's disk was given (11, 12)" in done.err) == (1, True)
    done = pylogseg(*command, b11)
    assert (done.code, "not looked at: the disk of broker 12" in done.err) == (1, True)
