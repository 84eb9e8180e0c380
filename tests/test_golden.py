"""The golden data are what they were when Kafka wrote them."""

import hashlib
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


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
    assert len([path for path in golden.rglob("*.log") if path.is_file()]) == 1223
    assert sum(1 for path in golden.rglob("*") if path.is_file()) == 6230
