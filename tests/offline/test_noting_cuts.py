"""Tests of format/files/cuts.py and offline/noting_cuts.py. What `repair` cut out on purpose is told as done by
`verify`, and goes with the partition; all else is damage.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from helpers.damaged_logs import change_byte

from pylogseg.cli import shell
from pylogseg.errors import CorruptionError
from pylogseg.format.batches import scan
from pylogseg.format.files.cuts import Cut, encode_cuts, parse_cuts, without

CUTS = "pylogseg-cuts.json"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(shell, [*map(str, arguments)])


@pytest.fixture
def repaired(golden: Path, tmp_path: Path) -> Path:
    """A partition of which the first batch of a segment, the last one, and one in the middle were cut out."""
    folder = Path(shutil.copytree(golden / "broker-4.3" / "damage" / "intact" / "in", tmp_path / "d" / "producers-0"))
    (folder.parent / "recovery-point-offset-checkpoint").write_text(
        "0\n1\nproducers 0 45\n"
    )  # so it is not a compacted one
    for log, at in zip(sorted(folder.glob("*.log"))[1:4], (0, -1, 4), strict=True):
        data = bytearray(log.read_bytes())
        rows = scan(bytes(data)).batches
        data[int(rows.position[at]) + 100] ^= 0x55
        log.write_bytes(data)
    assert run("verify", folder).exit_code == 1
    assert run("repair", folder, "--keep-behind", "--no-keep").exit_code == 1
    return folder


def test_verify_tells_what_was_cut_out_on_purpose(repaired: Path) -> None:
    done = run("verify", repaired)
    assert done.exit_code == 0, done.output
    assert done.output.count("cut out on purpose by `repair`, on ") == 3
    assert "offsets 45 to 49 were cut out" in done.output
    rows = [json.loads(line) for line in run("verify", repaired, "--json").output.splitlines()]
    found = [(row["offset"], row["lastOffset"]) for row in rows if row.get("kind") == "cut"]
    assert found == [(45, 49), (130, 134), (155, 159)]


def test_only_what_is_named_is_done(repaired: Path) -> None:
    """Another batch that goes beside it is missing; and a trace that was changed says nothing.

    Whether it is lost is not known: the records have keys, and the metadata beside them has no settings of this topic.
    """
    log = sorted(repaired.glob("*.log"))[1]
    data = log.read_bytes()
    size = int(scan(data).batches.size[0])
    log.write_bytes(data[size:])
    done = run("verify", repaired)
    assert done.exit_code == 2
    assert "offsets 50 to 54 are missing" in done.output
    assert "offsets 45 to 49 were cut out on purpose" in done.output
    log.write_bytes(data)
    trace = repaired / CUTS
    whole = trace.read_bytes()
    trace.write_bytes(whole.replace(b'"first_offset": 45', b'"first_offset": 40'))
    done = run("verify", repaired)
    assert done.exit_code == 1
    assert "the checksum of this list of cuts does not match" in done.output
    assert "offsets 45 to 49 are missing" in done.output
    trace.unlink()
    done = run("verify", repaired)
    assert done.exit_code == 2
    assert "offsets 45 to 49 are missing" in done.output


def test_a_second_repair_keeps_what_the_first_one_noted(repaired: Path) -> None:
    change_byte(sorted(repaired.glob("*.log"))[3], 100, 0x55)
    run("repair", repaired, "--keep-behind", "--no-keep")
    done = run("verify", repaired)
    assert (done.exit_code, done.output.count("cut out on purpose")) == (0, 4), done.output


def into_another(repaired: Path, command: str) -> Result:
    """Run a command that makes a copy of the log directory."""
    other = repaired.parent.parent / "other"
    if command == "restore":
        other.mkdir()
    return run(command, repaired.parent, other)


COMMANDS: dict[str, Callable[[Path], Result]] = {
    "compact": lambda p: run("compact", p, "--include-active", "-c", "cleanup.policy=compact"),
    "retain": lambda p: run("retain", p, "--bytes", "9000"),
    "delete-records": lambda p: run("delete-records", p, "--offset", "48"),
    "redact": lambda p: run("redact", p, "--header", "none"),
    "redact keys": lambda p: run("redact", p, "--match", "key=1"),
    "recode": lambda p: run("recode", p, "--compression", "zstd"),
    "truncate": lambda p: run("truncate", p, "--to", "150"),
    "reindex": lambda p: run("reindex", p),
    "recover": lambda p: run("recover", p, "--full"),
    "repair": lambda p: run("repair", p),
    "copy": lambda p: into_another(p, "copy"),
    "restore": lambda p: into_another(p, "restore"),
    "reindex into": lambda p: run("reindex", p.parent, "--into", p.parent.parent / "other"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_cut_out_is_told_after_every_command(repaired: Path, name: str) -> None:
    """In the place, and in what a command makes elsewhere."""
    made = COMMANDS[name](repaired)
    assert made.exit_code == 0, made.output
    for folder in sorted(repaired.parent.parent.iterdir()):
        done = run("verify", folder)
        assert done.exit_code == 0, done.output
    if name in ("copy", "restore", "reindex into", "recode", "repair", "reindex", "recover"):
        assert done.output.count("cut out on purpose") == 3, done.output


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[1]", b'{"version": 2, "cuts": []}', b"\xff", b"[" * 100_000,
     encode_cuts([Cut(5, 5, "repair", 0, "", 0, 0, 0, "")]),
     encode_cuts([Cut(1, 5, "repair", 10**30, "", 0, 0, 0, "")]),
     encode_cuts([Cut("1", 5, "repair", 1, "", 0, 0, 0, "")])],  # type: ignore[arg-type]
)  # fmt: skip
def test_what_no_command_wrote_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        parse_cuts(data, "x")


def test_a_range_without_what_was_cut_out() -> None:
    cuts = [Cut(first, end, "repair", 0, "", 0, 0, 0, "") for first, end in ((10, 20), (10, 20), (30, 40))]
    assert without(10, 20, cuts) == ([], cuts[:1])
    assert without(5, 35, cuts) == ([(5, 10), (20, 30)], [cuts[0], cuts[2]])
    assert without(20, 30, cuts) == ([(20, 30)], [])
    assert parse_cuts(encode_cuts(cuts), "x") == cuts


def test_a_merge_carries_what_stays_cut(golden: Path, repaired: Path, tmp_path: Path) -> None:
    """What another replica still has comes back, and is cut no more."""
    done = run("merge", repaired.parent, "--into", tmp_path / "alone")
    assert done.exit_code == 0, done.output
    assert done.output.count("cut out on purpose by `repair`") == 3
    merged = tmp_path / "alone" / repaired.name
    assert parse_cuts((merged / CUTS).read_bytes(), "") == parse_cuts((repaired / CUTS).read_bytes(), "")
    (merged.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nproducers 0 45\n")
    assert run("verify", merged.parent).output.count("cut out on purpose by `repair`, on ") == 3
    other = tmp_path / "other" / repaired.name
    shutil.copytree(golden / "broker-4.3" / "damage" / "intact" / "in", other)
    for name in ("recovery-point", "replication"):
        (other.parent / f"{name}-offset-checkpoint").write_text("0\n1\nproducers 0 45\n")
    log = sorted(other.glob("*.log"))[1]
    change_byte(log, 100, 0x55)  # the first of the three is lost here, too
    done = run("merge", repaired.parent, other.parent, "--into", tmp_path / "both")
    assert done.exit_code == 0, done.output
    cuts = parse_cuts((tmp_path / "both" / repaired.name / CUTS).read_bytes(), "")
    assert [(cut.first_offset, cut.next_offset) for cut in cuts] == [(45, 50)]
