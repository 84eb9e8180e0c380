"""Tests of reading/logs.py. The golden data are what they were when Kafka wrote them."""

import hashlib
import subprocess
import sys
from pathlib import Path

from helpers.golden import Decoded

GOLDEN = Path(__file__).parents[1] / "golden"


def sums() -> dict[str, str]:
    lines = (GOLDEN / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def test_archives_have_their_digests() -> None:
    archives = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*.xz")}
    assert archives == sums().keys()
    for name, digest in sums().items():
        assert hashlib.sha256((GOLDEN / name).read_bytes()).hexdigest() == digest, name


def test_archives_stay_below_a_mebibyte() -> None:
    assert max((GOLDEN / name).stat().st_size for name in sums()) < 1 << 20


def test_golden_unpacks_whole(golden: Path) -> None:
    scenarios = sorted((golden / "replay").iterdir())
    assert len(scenarios) == 67
    assert all((folder / name).exists() for folder in scenarios for name in ("ops.jsonl", "expected.jsonl", "final"))
    assert len(list((golden / "broker-4.3").iterdir())) == 14
    assert sorted(path.name for path in (golden / "broker-4.4" / "all").iterdir()) == [
        "data0", "data1", "expected.json", "expected.jsonl.gz",
    ]  # fmt: skip
    assert len([path for path in golden.rglob("*.log") if path.is_file()]) == 1665
    assert sum(1 for path in golden.rglob("*") if path.is_file()) == 8527


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_examples_are_golden(golden: Path, examples: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    subprocess.run([sys.executable, GOLDEN / "examples.py", golden, out], check=True)
    assert files(examples) == files(out)


def test_kafkas_reading_covers_every_record_file(golden: Path, decoded: Decoded) -> None:
    there = [path for name in ("replay", "broker-4.3") for path in (golden / name).rglob("*")]
    record_files = [path for path in there if path.is_file() and {".log", ".checkpoint"} & set(path.suffixes)]
    readings = [decoded(path) for path in record_files]
    assert len(readings) == 1307
    assert sum(len(reading["batches"]) for reading in readings) == 12686
    assert {reading["end"]["error"] for reading in readings if "error" in reading["end"]} == {"CorruptRecordException"}
