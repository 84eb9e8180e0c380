"""Archives in an object store, over HTTP: `python tests/soak archive-store [--places N]`.

A server that speaks S3 is started on the loopback (moto), with a bucket that keeps versions and locks. A history of a
broker is archived there with a point after each step, and each point is read and restored. Then runs fail at a PUT, one
after the other at each, and the next one goes on. Objects are harmed by the store's own API, and named. What may not be
deleted is "not yet" to `prune`. Needs `pip install 'moto[server]' s3fs`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import boto3
from archive.histories import History, rows_of

from pylogseg.archive import list_points, open_archive, prune, read_point, restore_point, write
from pylogseg.archive.verifying import ArchiveSummary, verify_archive
from pylogseg.errors import StorageError
from pylogseg.inspect.verify.findings import Level
from soak.object_store import Store

BUCKET = "archive"


class Refusing:
    """Refuses the n-th PUT."""

    def __init__(self) -> None:
        self.puts, self.at = 0, -1

    def __call__(self, path: str) -> bool:
        """Count the PUT; whether it fails."""
        self.puts += 1
        return self.at <= self.puts < self.at + 20 if self.at > 0 else False


def damage(url: str, store: Store, read: Any = "all") -> set[str]:
    """The objects that `verify` names."""
    summary = ArchiveSummary(Level.INDEXES)
    found = list(verify_archive(url, summary, read=read, storage_options=store.options))
    named = {each.path for each in found if each.is_damage}
    assert summary.exit_code == bool(named), (summary.exit_code, named)
    return named


def failing(history: History, url: str, store: Store, refusing: Refusing, places: int) -> None:
    """Runs that fail at a PUT; the next one goes on, and what is there is whole."""
    for at in range(1, places + 1):
        history.write(5)
        refusing.puts, refusing.at = 0, at
        try:
            write(history.home, url, storage_options=store.options)
        except StorageError as error:
            print(f"   PUT {at}: {error.reason[:70]}")
        refusing.at = -1
        assert not write(history.home, url, storage_options=store.options).faults
        assert rows_of(open_archive(url, storage_options=store.options)) == rows_of(history.home)


def harms(url: str, store: Store, client: Any) -> None:
    """What somebody does with the store's API, and what `verify` says of it."""
    point = read_point(url, list_points(url, store.options)[-1], store.options)
    by_kind: dict[str, list[str]] = {}
    for key, stored in point.objects.items():
        if stored.size:
            by_kind.setdefault(key.rpartition(".")[2], []).append(key)
    for kind, (one, *others) in by_kind.items():
        key = f"data/{one}"
        data = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        other = client.get_object(Bucket=BUCKET, Key=f"data/{others[0]}")["Body"].read() if others else b"?" * len(data)
        for harm, content in (("rotten", data[:-1] + bytes([data[-1] ^ 1])), ("cut", data[:-1]), ("swapped", other)):
            client.put_object(Bucket=BUCKET, Key=key, Body=content)
            assert f"{url}/{one}" in damage(url, store), (kind, harm)
        client.delete_object(Bucket=BUCKET, Key=key)
        assert f"{url}/{one}" in damage(url, store, "none"), (kind, "gone")
        client.put_object(Bucket=BUCKET, Key=key, Body=data)
        assert damage(url, store) == set(), kind
    print(f"   named of {', '.join(by_kind)}: rotten, cut, swapped, gone")


def main() -> None:
    """All of it; AssertionError where something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=12, help="PUTs that fail, one after the other")
    asked = parser.parse_args()
    refusing = Refusing()
    store = Store(refusing)
    os.environ.update(store.environment, AWS_DEFAULT_REGION="us-east-1")
    client = boto3.client("s3", endpoint_url=store.environment["AWS_ENDPOINT_URL"])
    client.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
    url = f"s3://{BUCKET}/data"
    with tempfile.TemporaryDirectory(prefix="archive-store-") as folder:
        history, points = History(Path(folder)), {}
        for step in history.steps:
            step()
            done = write(history.home, url, storage_options=store.options)
            points[done.point.id] = rows_of(history.home)
        assert damage(url, store) == set()
        for number, (point, expected) in enumerate(points.items()):
            assert rows_of(open_archive(url, point=point, storage_options=store.options)) == expected
            target = Path(folder) / f"restored-{number}"
            target.mkdir()
            restore_point(url, target, point=point, node_id=1, storage_options=store.options)
            assert rows_of(target) == expected
        print(f"   {len(points)} points: read, and restored as a cluster")
        failing(history, url, store, refusing, asked.places)
        harms(url, store, client)
        locked(url, store)
    print("all is well")


def locked(url: str, store: Store) -> None:
    """Objects that the store does not let go stay, and are named; later they go."""
    kept = read_point(url, list_points(url, store.options)[-1], store.options)
    gone = [key for key in read_point(url, list_points(url, store.options)[0], store.options).objects
            if key not in kept.objects]  # fmt: skip
    assert gone
    store.locked = {f"/{BUCKET}/data/{gone[0]}"}
    done = prune(url, keep_last=1, storage_options=store.options)
    assert done.not_yet == [f"{url}/{gone[0]}"], done.not_yet
    assert damage(url, store) == set()
    store.locked = set()
    assert prune(url, keep_last=1, storage_options=store.options).not_yet == []
    assert damage(url, store) == set()
    print(f"   pruned {done.objects} objects, and one that was locked later")


if __name__ == "__main__":
    main()
