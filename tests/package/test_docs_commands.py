"""Tests of the whole package. Commands of the guides that show no output: as they are written, one after the other, in
an empty folder.
"""

from __future__ import annotations

import datetime
import runpy
import shlex
import shutil
from pathlib import Path

import documents
import pytest
from helpers.shell import pylogseg as shell

from pylogseg.archive import list_points

#: Pages, each with the beginnings of commands that need what is not here: a store, a catalog, a Kafka, Spark, a server.
PAGES = {
    "backup": ("archive kafka:",),
    "lake": ("lake /data/kafka orders delta:s3:", "lake /data/kafka orders iceberg:kafka."),
    "lost-cluster": (),
    "typed-values": (),
    "merge": (),
    "spark-jobs": (),
}
#: Options, each with a value, that are left out.
OPTIONS_OF_OTHERS = ("--kafka-home", "--spark", "--spark-conf")


@pytest.fixture
def places(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Where the folders and stores of the examples are here; the commands run in an empty folder."""
    data, empty = tmp_path / "data", tmp_path / "empty"
    data.mkdir()
    empty.mkdir()
    runpy.run_path(str(documents.ROOT / "examples" / "typed_shop.py"))["write"](data / "kafka")
    shutil.copytree(golden / "inside" / "groups" / "data0", tmp_path / "mnt" / "old")
    for name in ("data0", "data1"):
        shutil.copytree(golden / "inside" / "groups" / name, tmp_path / "mnt" / f"b{int(name[-1]) + 1}")
    for topic in ("orders", "payments"):
        for part in (data / "kafka").glob(f"{topic}-*"):
            shutil.copytree(part, tmp_path / "mnt" / "old" / part.name)
    monkeypatch.chdir(empty)
    places = {"s3://bucket/archive": str(tmp_path / "archive"), "/etc/ops.pem": "ops.pem", "users": "payments"}
    places |= {"/mnt/b3": "", "/mnt/broker3": "", "/mnt/broker": "/mnt/b"}  # there are two brokers
    return places | {f"/{name}/": f"{tmp_path}/{name}/" for name in ("data", "mnt")}


def commands_of(page: str) -> list[list[str]]:
    """The words of the commands in blocks of a page."""
    path = documents.ROOT / "docs" / f"{page}.md"
    found = [block for language in ("text", "bash", "sh") for block in documents.blocks(path, language)]
    lines = [line for block in sorted(found, key=lambda block: block.line)
             for line in block.text.replace("\\\n", " ").splitlines()]  # fmt: skip
    words = [shlex.split(line.removeprefix("$ ").removeprefix("ExecStart="), comments=True) for line in lines
             if line.removeprefix("$ ").startswith(("pylogseg", "mkdir", "ExecStart=", "openssl"))]  # fmt: skip
    return [each for each in words if each]


def adapted(words: list[str], places: dict[str, str]) -> list[str]:
    """The words of a command for the places here, with the points that are there now."""
    before = ["", *words[:-1]]
    kept = [word for word, last in zip(words, before, strict=True) if not {word, last} & set(OPTIONS_OF_OTHERS)]
    for place, here in places.items():
        kept = [word.replace(place, here) for word in kept]
    archive = Path(places["s3://bucket/archive"])
    if archive.exists():
        points = [point.id for point in list_points(archive)]
        kept = [points[0] if word.startswith("2026") and "-" not in word else word for word in kept]
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    return [now if word == "2026-01-31T12:00:00Z" else word for word in kept if word]


@pytest.mark.parametrize("page", PAGES)
def test_commands_run_as_they_are_written(page: str, places: dict[str, str]) -> None:
    """Exit code 1 says something of the data here, such as a value that does not decode; 2 would be the example's."""
    count = 0
    for words in commands_of(page):
        name, *rest = words
        if " ".join(rest).startswith(PAGES[page]) and PAGES[page]:
            continue
        if name == "openssl":
            make_keys()
        elif name == "mkdir":
            Path(adapted(rest, places)[0]).mkdir()
        else:
            if (
                rest[0] == "restore" and page == "lost-cluster" and "--cluster" not in rest
            ):  # the log directory of the new cluster's broker
                Path(adapted(rest, places)[2]).mkdir(exist_ok=True)
            done = shell(*adapted(rest, places))
            is_partly = rest[0] == "drill" and "all is as it was at the point" in done.text  # one without metadata
            assert done.code in (0, 1) or is_partly, (words, done.err)
            assert "Usage:" not in done.err
            count += 1
    assert count


def make_keys() -> None:
    """What the commands of openssl do."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    forms = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    Path("ops-private.pem").write_bytes(key.private_bytes(*forms))
    public = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    Path("ops.pem").write_bytes(key.public_key().public_bytes(*public))
