"""Tests of disk/tier/chunk_view.py and disk/tier/layouts.py. Damage of a tier is named with its object and position,
and nothing else is lost.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from helpers.checks import some
from helpers.damaged_logs import change_byte
from helpers.damaged_tiers import CHUNK, World, damage_of, metadata
from helpers.shell import expect
from helpers.tiered_logs import write_log
from helpers.tiers import TOPIC_ID, Key, Uploader

import pylogseg
from pylogseg.disk.tier.keys import KeyRing
from pylogseg.disk.tier.manifest import MANIFEST_LIMIT_BYTES, encode_sizes, parse_manifest
from pylogseg.format.uuids import format_uuid
from pylogseg.walker.unreadable import Patched

OTHER_ID = format_uuid(b"another topic id")


def test_no_damage(world: World) -> None:
    assert damage_of(expect(world.verify(), 0)) == []
    assert world.offsets() == list(range(world.bases[-1]))


def lost(world: World, number: int) -> set[int]:
    return set(range(world.bases[number], world.bases[number + 1]))


def test_flipped_byte(world: World) -> None:
    """One chunk is lost, with the batches that lie in it."""
    path = world.object(2, "log")
    change_byte(path)
    with pytest.raises(pylogseg.StorageError, match=r"chunk \d+ of \d+, at \d+ to \d+ of the object.*its tag does not"):
        list(pylogseg.read(pylogseg.open_tier(world.url, world.keys)))
    missing = set(range(world.bases[-1])) - set(world.offsets())
    assert missing
    assert missing < lost(world, 2)
    assert len(missing) < 3 * len(lost(world, 2)) * CHUNK / 16384  # a chunk, and the batches over its bounds
    done = expect(world.verify(), 1)
    findings = [row for row in damage_of(done) if row["kind"] == "unreadable"]
    assert [row["path"] for row in findings] == [str(path)]
    assert "chunk" in findings[0]["reason"]
    assert set(range(findings[0]["offset"], findings[0]["lastOffset"] + 1)) == missing


def test_cut_object(world: World) -> None:
    path = world.object(1, "log")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size - size // 3])
    missing = set(range(world.bases[-1])) - set(world.offsets())
    assert missing
    assert missing < lost(world, 1)
    done = expect(world.verify(), 1)
    said = [row for row in damage_of(done) if row["kind"] == "tier-object"]
    assert [(row["path"], row["position"]) for row in said] == [(str(path), size - size // 3)]
    assert any("the object ends after" in row["reason"] for row in damage_of(done))


def test_missing_object(world: World) -> None:
    world.object(1, "log").unlink()
    assert set(range(world.bases[-1])) - set(world.offsets()) == lost(world, 1)
    with pytest.raises(pylogseg.StorageError, match="the object is not there"):
        list(pylogseg.read(pylogseg.open_tier(world.url, world.keys)))
    done = expect(world.verify(), 1)
    assert {row["path"] for row in damage_of(done) if row["kind"] == "tier-object"} == {str(world.object(1, "log"))}


def test_missing_indexes(world: World) -> None:
    """Indexes are hints: the records are all there without them."""
    world.object(1, "indexes").unlink()
    world.object(2, "indexes").write_bytes(world.object(2, "indexes").read_bytes()[:-50])
    assert world.offsets() == list(range(world.bases[-1]))
    done = expect(world.verify(), 1)
    said = {row["path"] for row in damage_of(done) if row["kind"] == "tier-object"}
    assert said == {str(world.object(1, "log")), str(world.object(2, "indexes"))}


def test_missing_manifest(world: World) -> None:
    """Without a manifest it is an orphan, and its offsets a hole."""
    world.manifests[1].unlink()
    assert set(range(world.bases[-1])) - set(world.offsets()) == lost(world, 1)
    done = expect(world.verify(), 1)
    holes = [row for row in damage_of(done) if row["kind"] == "tier-hole"]
    assert [(row["offset"], row["lastOffset"]) for row in holes] == [(world.bases[1], world.bases[2] - 1)]
    orphans = [row["path"] for row in done.rows if row.get("kind") == "tier-orphan"]
    assert orphans == sorted([str(world.object(1, "indexes")), str(world.object(1, "log"))])


def test_wrong_key(world: World, tmp_path: Path) -> None:
    Key.make("k", tmp_path / "other")
    disk = pylogseg.open_tier(world.url, tmp_path / "other")
    with pytest.raises(pylogseg.StorageError, match="key 'k' does not open the data key"):
        list(pylogseg.read(disk))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"version":"1"}', '{"version":"2"}', "[" * 100_000, "\ud800", "1" * 5000]
)
def test_manifest_is_garbage(world: World, text: str) -> None:
    world.manifests[1].write_bytes(text.encode("utf-8", "surrogatepass"))
    assert set(range(world.bases[-1])) - set(world.offsets()) == lost(world, 1)
    done = expect(world.verify(), 1)
    said = [row["path"] for row in damage_of(done) if row["kind"] == "tier-manifest"]
    assert said == [str(world.manifests[1])]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: metadata(f).update(endOffset=metadata(f)["endOffset"] + 3), "its manifest ends at offset"),
        (lambda f: metadata(f).update(maxTimestampMs=17), "the largest timestamp 17"),
        (lambda f: metadata(f).update(segmentLeaderEpochs={"7": metadata(f)["startOffset"]}), "leader epoch"),
        (lambda f: f["chunkIndex"].update(originalFileSize=10), "chunks are listed"),
        (lambda f: f["chunkIndex"].update(originalChunkSize=0), "originalChunkSize is 0"),
        (lambda f: metadata(f).update(startOffset=5), "the manifest is of another segment"),
        (lambda f: f["encryption"].update(dataKey="k:AAAA"), "the data key of 3 bytes"),
    ],
)
def test_manifest_lies(world: World, change: Callable[[dict[str, Any]], object], reason: str) -> None:
    last = len(world.manifests) - 1
    world.change(last, change)
    assert set(range(world.bases[last])) <= set(world.offsets())
    done = expect(world.verify(), 1)
    assert any(reason in row["reason"] for row in some(damage_of(done))), done.text


def packed(sizes: bytes) -> str:
    return base64.b64encode(zstandard.compress(sizes)).decode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (packed(b"\x7f\xff\xff\xff" + bytes(4) + b"\x04" + bytes(4)), "the list of chunk sizes has 13 bytes"),
        (packed(bytes(11 << 20)), "more than 10485760 bytes"),
        (packed(b"\xff\xff\xff\xff"), "for -1 chunks"),
        (packed(b"\x00\x00\x00\x03" + bytes(4) + b"\x00" + bytes(4)), "chunks of 0 bytes each"),
        ("no base64!", "not base64"),
        ("AAAA", "zstd"),
    ],
)
def test_bombs_in_chunk_sizes(world: World, text: str, reason: str) -> None:
    world.change(1, lambda fields: fields["chunkIndex"].update(transformedChunks=text))
    done = expect(world.verify(), 1)
    said = [row["reason"] for row in damage_of(done) if row["kind"] == "tier-manifest"]
    assert reason in said[0]
    assert set(range(world.bases[-1])) - set(world.offsets()) == lost(world, 1)


def test_bomb_in_a_chunk(tmp_path: Path) -> None:
    """A chunk that becomes more than its manifest says is not decompressed."""
    disk = write_log(tmp_path / "disk" / "orders-0")
    manifests = Uploader(tmp_path / "tier", CHUNK, True).partition(disk)
    fields = json.loads(manifests[0].read_text())
    chunks = [
        zstandard.compress(bytes(1 << 24)),
        *[zstandard.compress(b"")] * (-(-fields["chunkIndex"]["originalFileSize"] // CHUNK) - 1),
    ]
    fields["chunkIndex"]["transformedChunks"] = packed(encode_sizes(list(map(len, chunks))))
    manifests[0].write_text(json.dumps(fields))
    manifests[0].with_suffix(".log").write_bytes(b"".join(chunks))
    with pytest.raises(pylogseg.StorageError, match=f"it becomes more than {CHUNK} bytes"):
        list(pylogseg.read(pylogseg.open_tier(f"aiven+file://{tmp_path / 'tier'}")))


def test_large_manifest() -> None:
    with pytest.raises(pylogseg.CorruptionError, match="is not read"):
        parse_manifest(bytes(MANIFEST_LIMIT_BYTES + 1), "here")


def test_secrets_do_not_show(world: World) -> None:
    """Neither the keys nor what wraps them are in any message."""
    secrets = [line for line in (world.keys / "k.pem").read_text().splitlines() if len(line) > 40]
    secrets += [json.loads(path.read_text())["encryption"]["dataKey"][2:40] for path in world.manifests]
    for path in world.manifests[1:4]:
        path.write_text(path.read_text()[:-40])
    said = world.verify().text + repr(pylogseg.open_tier(world.url, world.keys))
    manifest = parse_manifest(world.manifests[0].read_bytes(), "here")
    said += repr(manifest) + str(manifest)
    try:
        list(pylogseg.read(pylogseg.open_tier(world.url, world.keys)))
    except pylogseg.PylogsegError as error:
        said += repr(error) + str(error)
    ring = KeyRing(world.keys)
    wrapped = manifest.encryption
    assert wrapped is not None
    ring.unwrap(wrapped.key_id, wrapped.wrapped)
    said += repr(ring) + repr(list(vars(ring)["_keys"].values()))
    key = load_pem_private_key((world.keys / "k.pem").read_bytes(), None)
    assert isinstance(key, RSAPrivateKey)
    secrets.append(str(key.private_numbers().p))
    assert not [secret for secret in some(secrets) if secret in said]


@pytest.mark.parametrize(
    ("size", "whole", "stored", "reason"),
    [
        (1024, 1 << 22, 0, "transformedChunkSize is 0"),
        (1, 1 << 22, 100, "4194304 bytes in chunks of 1: of so small ones 4096 are read"),
        (1024, 1 << 22, 8, "a chunk of 8 bytes in the object, where 1024 bytes, compressed, have 37 to 1580"),
        (1024, 1 << 22, 2_000_000_000, "a chunk of 2000000000 bytes in the object"),
        (1024, (1 << 31) - 1, 100, "chunk 0 of 2097152"),
    ],
)
def test_a_manifest_of_countless_chunks(world: World, size: int, whole: int, stored: int, reason: str) -> None:
    """Millions of chunks are not looked for one by one, in an object that has not so many bytes; nor are huge ones."""
    many = {"type": "fixed", "originalChunkSize": size, "originalFileSize": whole,
            "transformedChunkSize": stored, "finalTransformedChunkSize": stored}  # fmt: skip
    world.change(1, lambda fields: fields.update(chunkIndex=many))
    ends = world.bases[1], world.bases[2]
    assert world.offsets() == [n for n in range(world.bases[-1]) if not ends[0] <= n < ends[1]]
    with pytest.raises(pylogseg.PylogsegError, match=reason):
        list(pylogseg.read(pylogseg.open_tier(world.url, world.keys)))


@pytest.mark.parametrize("layout", ["aiven", "localtier"])
def test_names_that_are_no_topics(world: World, tmp_path: Path, layout: str) -> None:
    """Objects in folders that no topic can have are counted; they keep nobody from reading the others."""
    if layout == "localtier":
        world.url = f"localtier+file://{tmp_path / 'local'}"
        for manifest in world.manifests:
            stem = tmp_path / "local" / f"orders-0-{TOPIC_ID}" / manifest.stem
            stem.parent.mkdir(parents=True, exist_ok=True)
            segment = tmp_path / "disk" / "orders-0" / f"{manifest.name[:20]}.log"
            stem.with_suffix(".log").write_bytes(segment.read_bytes())
            stem.with_suffix(".leader_epoch_checkpoint").write_text("0\n1\n0 0\n")
    name, inside = ("no:topic", "0/") if layout == "aiven" else ("no:topic-0", "")
    stem = Path(world.url.partition("://")[2], f"{name}-{OTHER_ID}", f"{inside}{0:020d}-{OTHER_ID}")
    stem.parent.mkdir(parents=True)
    for kind in ("rsm-manifest", "log", "leader_epoch_checkpoint"):
        stem.with_suffix(f".{kind}").write_text("{")
    assert world.offsets() == list(range(world.bases[-1]))
    (summary,) = world.verify().rows[-1:]
    assert any("names of another kind" in text for text in summary["notChecked"])


def test_bytes_before_a_lost_chunk_are_read_again_as_they_are(tmp_path: Path) -> None:
    """The last upload of a log is cut inside a batch: who looks again sees the same, and comes to an end."""
    world = World(tmp_path)
    path = world.object(-1, "log")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    segment = pylogseg.open_tier(world.url, world.keys).partitions[0].segments[-1]
    with segment.open() as view:
        patched = Patched(view)
        whole = bytes(patched.read(0, view.size))
        ((first, _),) = patched.lost
        assert first % 4096
        assert any(whole[first - 50 : first])
        assert bytes(patched.read(first - 50, 100)) == whole[first - 50 : first + 50]
    assert max(world.offsets()) >= segment.base_offset
