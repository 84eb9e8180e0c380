"""Tiers as Aiven's plugin writes them, made of the folders of partitions."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zstandard
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import pylogseg
from pylogseg.format.uuids import format_uuid

TOPIC_ID = format_uuid(bytes(range(16)))


@functools.cache
def private_key(ring: str, name: str, bits: int) -> rsa.RSAPrivateKey:
    """The key of a name in a ring, the same one in all tests of a process: to draw one takes a tenth of a second."""
    return rsa.generate_private_key(65537, bits)


class Key(NamedTuple):
    """A key that wraps others."""

    name: str
    private: rsa.RSAPrivateKey

    @classmethod
    def make(cls, name: str, folder: Path, bits: int = 2048) -> Key:
        """Write a key into a folder as a key ring has it; in a folder of another name it is another one."""
        private = private_key(folder.name, name, bits)
        folder.mkdir(exist_ok=True)
        text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.pem").write_bytes(text)
        return cls(name, private)

    def wrap(self, data: bytes) -> str:
        """The text of a data key in a manifest: OAEP by SHA3-512, which `cryptography` has no padding for."""
        numbers = self.private.public_key().public_numbers()
        block = padded(data, self.private.key_size // 8, os.urandom(64))
        number = pow(int.from_bytes(block, "big"), numbers.e, numbers.n)
        return f"{self.name}:{base64.b64encode(number.to_bytes(self.private.key_size // 8, 'big')).decode()}"


def padded(message: bytes, size: int, seed: bytes) -> bytes:
    """The OAEP block of a message."""
    digest = hashlib.sha3_512(b"").digest()
    data = digest + bytes(size - len(message) - 2 * len(digest) - 2) + b"\1" + message
    data = xor(data, mask(seed, len(data)))
    return b"\0" + xor(seed, mask(data, len(seed))) + data


def mask(seed: bytes, size: int) -> bytes:
    """MGF1."""
    return b"".join(hashlib.sha3_512(seed + n.to_bytes(4, "big")).digest() for n in range(-(-size // 64)))[:size]


def xor(one: bytes, two: bytes) -> bytes:
    """Both, bit by bit."""
    return bytes(a ^ b for a, b in zip(one, two, strict=True))


def encoded_sizes(sizes: Iterable[int]) -> bytes:
    """The binary list of chunk sizes, as the plugin encodes it."""
    values = np.array(list(sizes), np.int64)
    head, last = len(values).to_bytes(4, "big"), values[-1:].astype(">i4").tobytes()
    if len(values) < 2:
        return head + last
    base = int(values[:-1].min())
    rest = (values[:-1] - base).astype(">u4")
    width = max(1, -(-int(rest.max()).bit_length() // 8))
    body = rest.view(np.uint8).reshape(-1, 4)[:, 4 - width :].tobytes()
    return head + base.to_bytes(4, "big") + bytes([width]) + body + last


class Uploader:
    """Uploads segments into a folder.

    Parameters
    ----------
    root : Path
        The folder of the tier.
    chunk_bytes : int
    is_compressed : bool
    key : Key, optional
        Encrypts what is uploaded.
    """

    def __init__(
        self, root: Path, chunk_bytes: int = 4096, is_compressed: bool = False, key: Key | None = None
    ) -> None:
        self.root, self.chunk_bytes, self.is_compressed, self.key = root, chunk_bytes, is_compressed, key
        self.later_ms = 0  #: How long after its newest record a segment is uploaded.

    def partition(self, folder: Path, topic_id: str = TOPIC_ID, *, active: bool = False) -> list[Path]:
        """Upload the segments of a partition, without its active one unless that is asked for; their manifests."""
        (part,) = pylogseg.open_dir(folder).partitions
        ends = [segment.next_base for segment in part.segments]
        ends[-1] = pylogseg.reading.seek.end_offset(part.segments)
        count = len(ends) if active else len(ends) - 1
        return [self.segment(folder, part.segments[i].base_offset, ends[i] or 0, topic_id) for i in range(count)]

    def segment(self, folder: Path, base: int, end: int, topic_id: str = TOPIC_ID, epochs: Any = None) -> Path:
        """Upload one segment, of `base` up to before `end`; the path of its manifest."""
        topic, _, partition = folder.name.rpartition("-")
        data_key, aad = os.urandom(32), os.urandom(32)
        aes = None if self.key is None else AESGCM(data_key)

        def sealed(data: bytes) -> bytes:
            iv = os.urandom(12)
            return data if aes is None else iv + aes.encrypt(iv, data, aad)

        log = (folder / f"{base:020d}.log").read_bytes()
        originals = [log[i : i + self.chunk_bytes] for i in range(0, len(log), self.chunk_bytes)]
        compressed = [zstandard.compress(each) for each in originals] if self.is_compressed else originals
        chunks = [sealed(each) for each in compressed]
        index: dict[str, Any] = {"originalChunkSize": self.chunk_bytes, "originalFileSize": len(log)}
        if self.is_compressed:
            sizes = base64.b64encode(zstandard.compress(encoded_sizes(map(len, chunks)))).decode()
            index |= {"type": "variable", "transformedChunks": sizes}
        else:
            whole = len(sealed(bytes(self.chunk_bytes)))
            index |= {"type": "fixed", "transformedChunkSize": whole, "finalTransformedChunkSize": len(chunks[-1])}
        epochs = epochs or [tuple(map(int, line.split())) for line in self._epoch_lines(folder)]
        chain = [(epoch, start) for epoch, start in epochs if start < end]
        own = {str(e): max(s, base) for i, (e, s) in enumerate(chain) if i + 1 == len(chain) or chain[i + 1][1] > base}
        files = {
            "offset": self._bytes(folder / f"{base:020d}.index"),
            "timestamp": self._bytes(folder / f"{base:020d}.timeindex"),
            "producerSnapshot": self._bytes(folder / f"{end:020d}.snapshot"),
            "leaderEpoch": f"0\n{len(chain)}\n{''.join(f'{e} {s}{chr(10)}' for e, s in chain)}".encode(),
            "transaction": self._bytes(folder / f"{base:020d}.txnindex"),
        }
        places, body = {}, b""
        for name, data in files.items():
            stored = sealed(data) if data else b""
            places[name] = {"position": len(body), "size": len(stored)} if data or name != "transaction" else None
            body += stored
        segment_id = format_uuid(os.urandom(16))
        segment_ms = int(pylogseg.scan(log).batches.max_timestamp.max())
        manifest = {
            "version": "1", "chunkIndex": index, "segmentIndexes": places, "compression": self.is_compressed,
            "remoteLogSegmentMetadata": {
                "remoteLogSegmentId": {
                    "topicIdPartition": {
                        "topicId": topic_id, "topicPartition": {"topic": topic, "partition": int(partition)}
                    },
                    "id": segment_id,
                },
                "startOffset": base, "endOffset": end - 1, "maxTimestampMs": segment_ms, "brokerId": 1,
                "eventTimestampMs": segment_ms + self.later_ms, "segmentLeaderEpochs": own,
            },
        }  # fmt: skip
        if self.key is not None:
            manifest["encryption"] = {"dataKey": self.key.wrap(data_key), "aad": base64.b64encode(aad).decode()}
        stem = self.root / f"{topic}-{topic_id}" / partition / f"{base:020d}-{segment_id}"
        stem.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{stem}.log").write_bytes(b"".join(chunks))
        Path(f"{stem}.indexes").write_bytes(body)
        path = Path(f"{stem}.rsm-manifest")
        path.write_text(json.dumps(manifest), encoding="utf-8")
        return path

    @staticmethod
    def _epoch_lines(folder: Path) -> list[str]:
        path = folder / "leader-epoch-checkpoint"
        lines = path.read_text(encoding="ascii").splitlines()[2:] if path.exists() else []
        return lines or ["0 0"]

    @staticmethod
    def _bytes(path: Path) -> bytes:
        return path.read_bytes() if path.exists() else b""


#: Files of a segment in the order in which `LocalTieredStorage` copies them, by their suffixes there.
COPIED = ("log", "index", "timeindex", "txnindex", "leader_epoch_checkpoint", "snapshot")


def copy_locally(root: Path, folder: Path) -> list[Path]:
    """Copy the sealed segments of a partition as `LocalTieredStorage` does; the paths of the copies."""
    (part,) = pylogseg.open_dir(folder).partitions
    return [copy_segment(root, folder, each.base_offset, each.next_base or 0) for each in part.segments[:-1]]


def copy_segment(
    root: Path, folder: Path, base: int, end: int, topic_id: str = TOPIC_ID, epochs: Iterable[Any] = ()
) -> Path:
    """Copy one segment, of `base` up to before `end`; the path of the copy."""
    known = [f"{epoch} {start}" for epoch, start in epochs] or Uploader._epoch_lines(folder)
    lines = [line for line in known if int(line.split()[1]) < end]
    stem = root / f"{folder.name}-{topic_id}" / f"{base:020d}-{format_uuid(os.urandom(16))}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = {suffix: folder / f"{base:020d}.{suffix}" for suffix in COPIED[:4]}
    files["snapshot"] = folder / f"{end:020d}.snapshot"
    for suffix, path in files.items():
        if path.exists():
            Path(f"{stem}.{suffix}").write_bytes(path.read_bytes())
    Path(f"{stem}.leader_epoch_checkpoint").write_text("".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]))
    return Path(f"{stem}.log")


def break_off(copied: Path, done: int) -> None:
    """Leave so many files of a copied segment, and a half of the next."""
    for number, suffix in enumerate(COPIED):
        path = copied.with_suffix(f".{suffix}")
        if number == done and path.exists():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        elif number > done:
            path.unlink(missing_ok=True)
