"""Tests of cli/recode.py and cli/redact.py. redact, recode and repair in the shell: on the damaged directories of a
real broker, and on the examples.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import log_dir_of
from helpers.shell import expect, pylogseg, rows
from helpers.trees import tree

import pylogseg as package

INTERVAL = ("--config", "index.interval.bytes=512", "--config", "segment.index.bytes=4096")
#: What a reader that skips damage gives, a repair leaves; but for these.
DIFFERENT = {"repeated-batch"}  # a reader gives both of what is there twice


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def records(folder: Path, **arguments: Any) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value) for r in package.read(str(folder), on_corrupt="skip", **arguments)]


def test_damaged_directories_of_a_broker(golden: Path, tmp_path: Path) -> None:
    """Of each the good batches stay, all of them, and nothing damaged; a second repair finds no gap."""
    found = {}
    for case in sorted(path.name for path in (golden / "broker-4.3" / "damage").iterdir()):
        folder = log_dir_of(golden, case, tmp_path / case)
        part = folder / "damaged-1"
        before = tree(folder)
        planned = pylogseg("repair", folder, "--keep-behind", "--json", "--dry-run", *INTERVAL)
        assert tree(folder) == before
        done = pylogseg("repair", folder, "--keep-behind", "--json", *INTERVAL)
        assert (planned.code, rows(planned, "gap")) == (done.code, rows(done, "gap")), case
        (partition,) = rows(done, "partition")
        if case == "misnamed-segment":
            assert partition["state"] == "failed"
            assert "rename its files to 00000000000000000180.*" in partition["reason"]
            continue
        assert partition["state"] in ("done", "unchanged"), (case, partition)
        leftovers = log_dir_of(golden, case, tmp_path / "again" / case)
        if not case.startswith("leftover"):
            wanted = records(leftovers / "damaged-1")
            if case not in DIFFERENT:
                assert records(part) == wanted, case
            assert set(records(part)) == set(wanted)
        offsets = [record[0] for record in records(part)]
        assert offsets == sorted(set(offsets))
        verified = pylogseg("verify", folder, "--json")
        damage = {row["kind"] for row in verified.rows if row.get("level") == "damage"}
        assert damage <= {"gap", "missing"}, (case, verified.text)  # what was lost stays lost
        again = pylogseg("repair", folder, "--keep-behind", "--json", *INTERVAL)
        assert (again.code, rows(again, "gap")) == (int(verified.code > 0), []), case
        found[case] = [row["kind"] for row in rows(done, "gap")]
    tails = ("huge-length", "torn-header", "torn-tail", "torn-tail-clean", "transactions-torn")
    assert {case: kinds for case, kinds in found.items() if kinds} == {
        **{case: ["torn"] for case in tails},
        **{case: ["zeros"] for case in ("zero-tail", "zero-tail-clean")},
        **{case: ["crc"] for case in ("bit-second", "bit-second-clean")},
        "bad-magic": ["magic"],
        "garbage-tail": ["length"],
        "repeated-batch": ["order"],
    }


def test_as_recover_without_keep_behind(golden: Path, tmp_path: Path) -> None:
    """The same files as `recover --full` leaves, and the gaps besides."""
    for case in ("bit-second", "huge-length", "torn-tail", "transactions-torn"):
        ours, other = (log_dir_of(golden, case, tmp_path / case / name) for name in ("repair", "recover"))
        done = pylogseg("repair", ours, "--json", *INTERVAL)
        assert rows(done, "gap")
        (partition,) = rows(done, "partition")
        assert [note[:5] for note in partition["notes"] if "bytes" in note] == ["gap: "] * len(rows(done, "gap"))
        assert done.code == 1
        pylogseg("recover", other, "--full", *INTERVAL)
        left = [{name: data for name, (data, _) in tree(folder / "damaged-1").items()} for folder in (ours, other)]
        assert {Path(n).name: d for n, d in left[0].items()} == {Path(n).name: d for n, d in left[1].items()}, case


def test_what_goes_is_kept(golden: Path, tmp_path: Path) -> None:
    folder = log_dir_of(golden, "bit-second", tmp_path)
    before = {path: data for path, (data, _) in tree(folder).items()}
    done = pylogseg("repair", folder / "damaged-1", "--keep-behind", "--keep", tmp_path / "kept", "--json", *INTERVAL)
    assert done.code == 1
    (gap,) = rows(done, "gap")
    (action,) = [row for row in rows(done, "action") if row["kind"] == "cut"]
    assert (action["position"], action["endPosition"]) == (gap["position"], gap["endPosition"])
    kept = Path(action["kept"]).read_bytes()
    assert kept == before[gap["path"]][gap["position"] : gap["endPosition"]]
    (line,) = (tmp_path / "kept" / "damaged-1" / "kept.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == gap["reason"]
    for keep in (folder, folder / "damaged-1" / "x"):
        expect(pylogseg("repair", folder, "--keep", keep), 2, "which a broker reads")


def test_unreadable_leader_epochs(golden: Path, tmp_path: Path) -> None:
    folder = log_dir_of(golden, "bad-epochs-clean", tmp_path)
    path = folder / "damaged-1" / "leader-epoch-checkpoint"
    assert pylogseg("recover", folder, *INTERVAL).code == 1
    done = pylogseg("repair", folder, "--json", *INTERVAL)
    assert done.code == 1  # epochs of leaders that wrote nothing are lost
    assert "made again from the batches" in " ".join(done.rows[-1]["doubts"] + rows(done, "partition")[0]["doubts"])
    assert "rebuilt" in next(row["reason"] for row in rows(done, "action") if row["kind"] == "epochs")
    assert path.read_text().startswith("0\n1\n0 0\n")


@pytest.fixture
def data(examples: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(examples, tmp_path / "data"))


def test_forgotten(data: Path, tmp_path: Path) -> None:
    """By a file of keys in hex; grep finds nothing, all else is as it was, and a second run changes nothing."""
    before = {part.name: list(records(part)) for part in data.glob("codec-*")}
    keys = tmp_path / "keys"
    keys.write_bytes(b"".join(key.hex().encode() + b"\r\n" for key in (b"k91", b"k17")) + b"\n")
    arguments = ("redact", data, "codec-*", "--key-file", keys, "--key-as", "hex", "--json", *INTERVAL)
    planned, done = pylogseg(*arguments, "--dry-run"), pylogseg(*arguments)
    assert (planned.code, done.code) == (0, 0)
    assert rows(planned, "segment") == rows(done, "segment")
    deleted = {row["partition"]: row["recordsDeleted"] for row in rows(done, "partition")}
    assert len(deleted) == 5
    for name, count in deleted.items():
        expected = [record for record in before[name] if record[2] not in (b"k91", b"k17")]
        assert records(data / name) == expected
        assert count == len(before[name]) - len(expected) > 0
    assert pylogseg("grep", "-E", "^(k91|k17)$", data, "codec-*", "--in", "key").code == 1
    assert pylogseg("verify", data).code == 0
    assert not rows(pylogseg(*arguments), "segment")


def test_blanked(data: Path) -> None:
    done = pylogseg(
        *("redact", data, "codec-zstd", "--match", "tombstone", "--in", "value", "--blank", "value", "--with", ""),
        *INTERVAL,
    )
    assert done.code == 0
    assert "BLANKED" in done.text
    assert pylogseg("grep", "tombstone", data, "codec-zstd").code == 1


def test_recoded(data: Path) -> None:
    before = {part.name: records(part) for part in data.iterdir() if part.is_dir() and not part.name.startswith("__cl")}
    expect(pylogseg("recode", data, "--compression", "zstd", "--magic-2", "--merge", "64Ki", *INTERVAL), 0)
    assert {name: records(data / name) for name in before} == before
    assert pylogseg("verify", data).code == 0
    stats = pylogseg("stats", data, "--json").rows
    assert "gzip" not in json.dumps([row.get("codecs") for row in stats])
    again = pylogseg("recode", data, "--compression", "zstd", "--magic-2", "--json", *INTERVAL)
    assert {row["state"] for row in rows(again, "partition")} == {"unchanged", "skipped"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("redact",), "no records are selected"),
        (("redact", "--key", "xy", "--key-as", "hex"), "invalid hex 'xy'"),
        (("redact", "--key", "a", "--with", "x"), "--with needs --blank value"),
        (("redact", "--key", "a", "--in", "headers"), "--in needs --match"),
        (("redact", "--match", "("), "invalid regular expression"),
        (("redact", "--key", "a", "--blank", "offset"), "there are key, value, headers"),
        (("recode",), "nothing to change"),
        (("recode", "--level", "3"), "a level (3) goes with a codec"),
        (("recode", "--compression", "gzip", "--level", "10"), "gzip has levels 1 to 9, not 10"),
        (("recode", "--merge", "0"), "merge_bytes (--merge) must be at least 1, got 0"),
        (("repair", "--keep", "x", "--no-keep"), "cannot be combined"),
    ],
)
def test_wrong_usage(examples: Path, arguments: tuple[str, ...], said: str) -> None:
    before = tree(examples)
    expect(pylogseg(arguments[0], examples, *arguments[1:]), 2, said)
    assert tree(examples) == before
