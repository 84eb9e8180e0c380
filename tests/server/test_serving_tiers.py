"""Tests of cli/serve.py, disk/tier/tier_storage.py and server/opening.py. Clients read tiered storage from `serve` as
`pylogseg.read` does, alone and joined with a disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.kafka_clients import assigned, row_of
from helpers.tiered_logs import write_log
from helpers.tiers import TOPIC_ID, Uploader

import pylogseg


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", ["aiven-zstd-aesgcm", "kafka-localtieredstorage"])
def test_golden_tiers(golden: Path, name: str, isolation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYLOGSEG_TIER_KEYS", str(golden / "tier" / "aiven-zstd-aesgcm" / "private.pem"))
    url = f"{'localtier' if 'local' in name else 'aiven'}+file://{golden / 'tier' / name}"
    with pylogseg.serve(url) as server:
        found = assigned(server, "orders", isolation_level=isolation)
    expected = sorted(map(row_of, pylogseg.read(pylogseg.open_dir(url), isolation_level=isolation)))
    assert found
    assert found == expected


def test_disk_and_tier(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "disk" / "orders-0")
    Uploader(tmp_path / "tier", is_compressed=True).partition(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "data" / "orders-0"))
    (copy / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    for segment in pylogseg.open_dir(folder).partitions[0].segments[:3]:
        for path in copy.glob(f"{segment.base_offset:020d}.*"):
            path.unlink()
    with pylogseg.serve(tmp_path / "data", tier=f"aiven+file://{tmp_path / 'tier'}") as server:
        found = assigned(server, "orders")
    assert found == sorted(map(row_of, pylogseg.read(folder)))
