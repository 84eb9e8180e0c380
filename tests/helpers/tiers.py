"""Tiers as Aiven's plugin writes them, made of the folders of partitions."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import pylogseg
from pylogseg.disk.tier.keys import PublicKey
from pylogseg.disk.tier.manifest import UploadedSegment
from pylogseg.disk.tier.writing import UploadForm, UploadWriter
from pylogseg.format.names import FileKind
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
    public: PublicKey

    @classmethod
    def make(cls, name: str, folder: Path, bits: int = 2048) -> Key:
        """Write a key into a folder as a key ring has it; in a folder of another name it is another one."""
        private = private_key(folder.name, name, bits)
        folder.mkdir(exist_ok=True)
        text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.pem").write_bytes(text)
        public = folder / f"{name}.public"
        public.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        return cls(name, private, PublicKey(public, name))


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
        log = (folder / f"{base:020d}.log").read_bytes()
        form = UploadForm(self.is_compressed, None if self.key is None else self.key.public, self.chunk_bytes)
        epochs = epochs or [tuple(map(int, line.split())) for line in self._epoch_lines(folder)]
        chain = [(epoch, start) for epoch, start in epochs if start < end]
        own = {e: max(s, base) for i, (e, s) in enumerate(chain) if i + 1 == len(chain) or chain[i + 1][1] > base}
        files = {
            FileKind.OFFSET_INDEX: self._bytes(folder / f"{base:020d}.index"),
            FileKind.TIME_INDEX: self._bytes(folder / f"{base:020d}.timeindex"),
            FileKind.PRODUCER_SNAPSHOT: self._bytes(folder / f"{end:020d}.snapshot"),
            FileKind.LEADER_EPOCHS: f"0\n{len(chain)}\n{''.join(f'{e} {s}{chr(10)}' for e, s in chain)}".encode(),
            FileKind.TXN_INDEX: self._bytes(folder / f"{base:020d}.txnindex"),
        }
        segment_id = format_uuid(os.urandom(16))
        segment_ms = int(pylogseg.scan(log).batches.max_timestamp.max())
        of = topic, int(partition), topic_id, segment_id, base, end - 1, segment_ms, 1, segment_ms + self.later_ms
        stem = self.root / f"{topic}-{topic_id}" / partition / f"{base:020d}-{segment_id}"
        stem.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{stem}.log", "wb") as file:
            writer = UploadWriter(file, form)
            writer.add(log)
            writer.finish()
        body, manifest = writer.beside(files, UploadedSegment(*of, tuple(own.items())))
        Path(f"{stem}.indexes").write_bytes(body)
        path = Path(f"{stem}.rsm-manifest")
        path.write_bytes(manifest)
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
