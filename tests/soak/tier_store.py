"""Tiers in object stores: `python tests/soak tier-store [--segments N] [--records N] [--delay-ms N]`.

A store that answers each request after some time has manifests of 100,000 segments, which are listed. Then a log is
read from the disk, and from tiers on the disk beside the bare work of the libraries. Last, a server that speaks S3
(moto) gets tiers: what is read is compared with the disk, and a hundredth of the time, as Spark plans and reads it,
takes at most 3 % of the bytes. Needs `pip install 'moto[server]' s3fs pyspark`; exit code 0 if all is well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import s3fs
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from fsspec.spec import AbstractFileSystem
from helpers.tiers import TOPIC_ID, Key, Uploader

import pylogseg
from pylogseg.disk.tier.keys import KeyRing
from pylogseg.disk.tier.manifest import parse_manifest
from pylogseg.format.uuids import format_uuid
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan
from pylogseg.spark.task import read_task
from soak.object_store import Store

#: Keys that a store returns for one request.
PAGE = 1000
#: As small against a log of 110 MB as the 4 MiB of the plugin are against one of 1.8 GB.
CHUNK_BYTES = 256 << 10


class SlowFiles(AbstractFileSystem):  # type: ignore[misc]
    """Objects in memory; each request takes a while, and any number run at once."""

    protocol = "slow"
    objects: dict[str, bytes] = {}  # noqa: RUF012
    delay = 0.02
    requests = 0
    lock = threading.Lock()

    def _wait(self, count: int = 1) -> None:
        with self.lock:
            type(self).requests += count
        time.sleep(self.delay * count)

    def find(self, path: str, detail: bool = False, **_: Any) -> Any:
        """List by pages, one after the other."""
        self._wait(-(-len(self.objects) // PAGE))
        return {name: {"name": name, "type": "file", "size": len(data)} for name, data in self.objects.items()}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return an object, or a range of it."""
        self._wait()
        return self.objects[path][start:end]


def listing(count: int, scratch: Path, delay: float) -> None:
    """List very many segments, each with its manifest."""
    with pylogseg.open_log(scratch / "small" / "orders-0") as log:
        log.append([{"value": b"v", "timestamp": 1}])
    template = json.loads(Uploader(scratch / "one").segment(scratch / "small" / "orders-0", 0, 1).read_text())
    size = template["chunkIndex"]["originalFileSize"]
    for number in range(count):
        partition, offset = number % 100, number // 100 * 10
        uuid = format_uuid(number.to_bytes(16, "big"))
        said = template["remoteLogSegmentMetadata"]
        said["remoteLogSegmentId"]["id"] = uuid
        said["remoteLogSegmentId"]["topicIdPartition"]["topicPartition"]["partition"] = partition
        said |= {"startOffset": offset, "endOffset": offset + 9, "segmentLeaderEpochs": {"0": offset}}
        stem = f"bucket/pre/orders-{TOPIC_ID}/{partition}/{offset:020d}-{uuid}"
        SlowFiles.objects[f"{stem}.rsm-manifest"] = json.dumps(template).encode()
        SlowFiles.objects[f"{stem}.log"] = bytes(size)
        SlowFiles.objects[f"{stem}.indexes"] = bytes(100)
    fsspec.register_implementation("slow", SlowFiles, clobber=True)
    SlowFiles.delay = delay
    start = time.monotonic()
    disk = pylogseg.open_tier("aiven+slow://bucket/pre")
    seconds = time.monotonic() - start
    found = sum(len(part.segments) for part in disk.partitions)
    print(f"listing: {found:,} segments, {SlowFiles.requests:,} requests of {delay * 1000:.0f} ms, {seconds:.1f} s")
    assert found == count


def write(folder: Path, records: int) -> int:
    """A log of several segments, one record a millisecond, that zstd makes half as large; its bytes."""
    chance = random.Random(1)
    with pylogseg.open_log(folder / "orders-0", segment_bytes=16 << 20, retention_ms=-1) as log:
        for first in range(0, records, 50_000):
            numbers = range(first, min(first + 50_000, records))
            columns = {
                "value": pa.array([chance.randbytes(50).hex().encode() for _ in numbers]),
                "timestamp": pa.array(numbers, pa.timestamp("ms", "UTC")),
            }
            log.append(pa.table(columns), batch_bytes=16384)
    return sum(path.stat().st_size for path in folder.rglob("*.log"))


def best(work: Callable[[], object], rounds: int = 5) -> float:
    """The least time of some rounds, in seconds."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def count_rows(disk: pylogseg.Disk) -> int:
    """Read all records as columns."""
    return sum(len(chunk.columns) for chunk in pylogseg.read(disk, reuse_buffers=True).chunks())


def count_bytes(disk: pylogseg.Disk) -> int:
    """Read the bytes of all segments."""
    count = 0
    for segment in disk.segments:
        with segment.open() as view:
            count += sum(len(view.read(position, 4 << 20)) for position in range(0, view.size, 4 << 20))
    return count


def bare(folder: Path, keys: Path) -> int:
    """Read, decrypt and decompress all chunks, by the libraries and nothing else."""
    ring, count = KeyRing(keys), 0
    for path in sorted(folder.rglob("*.rsm-manifest")):
        manifest = parse_manifest(path.read_bytes(), str(path))
        data, encryption = path.with_suffix(".log").read_bytes(), manifest.encryption
        assert encryption is not None
        aes = AESGCM(ring.unwrap(encryption.key_id, encryption.wrapped))
        zstd = zstandard.ZstdDecompressor()
        for chunk in range(manifest.chunks.count):
            begin, end = manifest.chunks.place(chunk)
            count += len(zstd.decompress(aes.decrypt(data[begin : begin + 12], data[begin + 12 : end], encryption.aad)))
    return count


def rates(records: int, scratch: Path) -> None:
    """Read a log from the disk, and from tiers in chunks of 4 MiB on the disk."""
    size = write(scratch / "local", records)
    folder, key = scratch / "local" / "orders-0", Key.make("k", scratch / "ring")
    Uploader(scratch / "one-plain", 4 << 20).partition(folder, active=True)
    Uploader(scratch / "one-both", 4 << 20, True, key).partition(folder, active=True)

    def tier(name: str) -> pylogseg.Disk:
        return pylogseg.open_tier(f"aiven+file://{scratch / name}", scratch / "ring")

    local = best(lambda: count_rows(pylogseg.open_dir(folder)))
    plain = best(lambda: count_rows(tier("one-plain")))
    libraries = best(lambda: bare(scratch / "one-both", scratch / "ring"))
    both = best(lambda: count_bytes(tier("one-both")))
    print(f"records of {size:,} bytes: disk {size / local / 1e6:,.0f} MB/s, plain tier {local / plain:.2f} of it")
    print(f"bytes, zstd and AES: libraries {size / libraries / 1e6:,.0f} MB/s, tier {libraries / both:.2f} of it")


def ranges(records: int, scratch: Path) -> None:
    """Read from S3: whole, and a hundredth of the time."""
    size = write(scratch / "disk", records)
    folder, store, key = scratch / "disk" / "orders-0", Store(), Key.make("k", scratch / "keys")
    uploads = {
        "plain": Uploader(scratch / "plain", CHUNK_BYTES),
        "both": Uploader(scratch / "both", CHUNK_BYTES, True, key),
    }
    s3 = s3fs.S3FileSystem(**store.options)
    s3.mkdir("tiers")
    for name, up in uploads.items():
        up.partition(folder, active=True)
        s3.put(str(scratch / name), f"tiers/{name}", recursive=True)
        disk = pylogseg.open_tier(f"aiven+s3://tiers/{name}", scratch / "keys", storage_options=store.options)
        assert pylogseg.read_arrow(disk).read_all().equals(pylogseg.read_arrow(folder).read_all())
        stored = sum(path.stat().st_size for path in (scratch / name).rglob("*") if path.suffix in (".log", ".indexes"))
        store.begin()
        since = records // 2
        asked = {"startingTimestamp": since, "endingTimestamp": since + records // 100}
        options = parse({**asked, "storageOptions": store.options | {"tier_keys": str(scratch / "keys")}})
        found = [
            offset
            for task in plan(f"aiven+s3://tiers/{name}", options)
            for batch in read_task(task, options, ["offset"])
            for offset in batch["offset"].to_pylist()
        ]
        assert found == list(range(since, since + records // 100))
        share = store.sent_bytes / stored
        print(
            f"{name}: {size:,} bytes as {stored:,} in S3; 1 % of the time: {store.requests} requests,"
            f" {store.sent_bytes:,} bytes, {share:.2%}"
        )
        assert share <= 0.03
        assert store.whole == 0


def main() -> None:
    """All parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--delay-ms", type=float, default=20)
    options = parser.parse_args()
    os.environ.pop("PYLOGSEG_TIER_KEYS", None)
    scratch = Path(tempfile.mkdtemp(prefix="tier-store-"))
    try:
        rates(options.records, scratch)
        listing(options.segments, scratch, options.delay_ms / 1000)
        ranges(options.records, scratch)
    finally:
        shutil.rmtree(scratch)
    print("all is well")


if __name__ == "__main__":
    main()
