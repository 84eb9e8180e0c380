"""An encrypted tier whose objects tests change, and what `verify` says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pylogseg
from helpers import shell
from helpers.tiered_logs import write_log
from helpers.tiers import Key, Uploader

CHUNK = 2000


class World:
    """An encrypted, compressed tier of one partition."""

    def __init__(self, folder: Path) -> None:
        disk = write_log(folder / "disk" / "orders-0")
        self.keys = folder / "keys"
        key = Key.make("k", self.keys)
        self.manifests = Uploader(folder / "tier", CHUNK, True, key).partition(disk)
        self.url = f"aiven+file://{folder / 'tier'}"
        self.bases = [segment.base_offset for segment in pylogseg.open_dir(disk).partitions[0].segments]

    def object(self, number: int, kind: str) -> Path:
        return self.manifests[number].with_suffix(f".{kind}")

    def change(self, number: int, change: Callable[[dict[str, Any]], object]) -> None:
        fields = json.loads(self.manifests[number].read_text())
        change(fields)
        self.manifests[number].write_text(json.dumps(fields))

    def offsets(self) -> list[int]:
        reader = pylogseg.read(pylogseg.open_tier(self.url, self.keys), on_corrupt="skip")
        return [record.offset for record in reader]

    def verify(self, *more: str) -> shell.Done:
        done = shell.pylogseg("verify", self.url, "--keys", self.keys, "--json", *more)
        assert "Traceback" not in done.err
        return done


def damage_of(done: shell.Done) -> list[dict[str, Any]]:
    return [row for row in done.rows if row["type"] == "finding" and row["level"] == "damage"]


def metadata(fields: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = fields["remoteLogSegmentMetadata"]
    return found
