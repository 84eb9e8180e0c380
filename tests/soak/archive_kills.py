"""Runs of `archive` that are killed at random, again and again: `python tests/soak archive-kills [--store NAME]`.

A broker's disk grows, is compacted, and has topics made anew; `pylogseg archive` runs as a process, with a drawn form
and number of jobs, and gets SIGKILL: at a random call or a few milliseconds behind it (`--store folder`), or before or
after a random request to an object store (`--store s3`: ours; `moto` needs `pip install 'moto[server]' boto3`).
After each kill the newest point is read and restored, `verify` reads all, and the next run goes on. What was whole is
not stored twice; of what was not, there is at most one segment for each job. See `helpers.killed_archives`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from helpers.killed_archives import Bucket, Folder, KilledRuns, Place
from helpers.object_servers import BUCKET, ObjectServer


def place_of(store: str, root: Path) -> Place:
    """A new place of this kind."""
    if store == "folder":
        return Folder(root / "archived")
    if store == "s3":
        return Bucket(ObjectServer())
    import boto3

    from soak.object_store import Store

    moto = Store()
    endpoint = moto.environment["AWS_ENDPOINT_URL"]
    keys = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket=BUCKET)
    return Bucket(ObjectServer(behind=endpoint.removeprefix("http://")))


def main() -> None:
    """All of it; AssertionError where something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--store", choices=["folder", "s3", "moto"], default="folder")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="archive-kills-") as folder:
        runs = KilledRuns(Path(folder), place_of(asked.store, Path(folder)), random.Random(asked.seed))
        until, rounds = time.monotonic() + asked.seconds, 0
        while time.monotonic() < until:
            runs.round()
            rounds += 1
    print(f"{rounds} rounds")
    for what, count in sorted(runs.count.items()):
        print(f"   {count:,} {what}")
    print("all is well")


if __name__ == "__main__":
    main()
