"""The objects of an uploaded segment in Aiven's layout, as they are made: chunks, small files, the manifest."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import IO, Any, NamedTuple

import numpy as np

from pylogseg.disk.tier.chunk_view import OVERHEAD_BYTES, closer
from pylogseg.disk.tier.digest import ObjectDigest
from pylogseg.disk.tier.keys import PublicKey
from pylogseg.disk.tier.manifest import (
    INDEXES,
    Chunks,
    Encryption,
    FixedChunks,
    Manifest,
    UploadedSegment,
    VariableChunks,
    encode_manifest,
)
from pylogseg.format.names import FileKind
from pylogseg.format.zstd_frames import sized_compressor

#: As in Aiven's plugin.
CHUNK_BYTES = 4 << 20
#: Of the SHA-256 of an object, so many digits are in the id of its segment.
_ID_DIGITS = 24


class UploadForm(NamedTuple):
    """How segments are uploaded."""

    is_compressed: bool = False  #: By zstd, each chunk by itself.
    key: PublicKey | None = None  #: Encrypts what is uploaded.
    chunk_bytes: int = CHUNK_BYTES


class UploadWriter:
    """Makes the objects of one segment: its bytes go into a file as they come, the rest is returned.

    The caller must not change the bytes until the next call.
    """

    def __init__(self, file: IO[bytes], form: UploadForm) -> None:
        self._file, self._form = file, form
        self._encryption: Encryption | None = None
        self._seal: Callable[[Any], bytes] | None = None
        if form.key is not None:
            self._encryption, self._seal = closer(form.key)
        self._compress = sized_compressor() if form.is_compressed else None
        self._chunk, self._sizes = bytearray(), list[int]()
        self._digest = ObjectDigest()
        self.size = self.stored_size = 0  #: Bytes of the segment, and of its object.

    def add(self, data: Any) -> None:
        """Take the next bytes of the segment."""
        view = memoryview(data).cast("B")
        self.size += len(view)
        if self._compress is None and self._seal is None:
            self._put(view)
            return
        while len(view):
            if not self._chunk and len(view) >= self._form.chunk_bytes:
                self._put_chunk(view[: self._form.chunk_bytes])
                view = view[self._form.chunk_bytes :]
                continue
            room = self._form.chunk_bytes - len(self._chunk)
            self._chunk += view[:room]
            view = view[room:]
            if len(self._chunk) == self._form.chunk_bytes:
                self._put_chunk(self._chunk)
                self._chunk = bytearray()

    def _put_chunk(self, chunk: Any) -> None:
        stored = chunk if self._compress is None else self._compress(chunk)
        stored = stored if self._seal is None else self._seal(stored)
        self._sizes.append(len(stored))
        self._put(stored)

    def _put(self, stored: Any) -> None:
        self._digest.update(stored)
        self._file.write(stored)
        self.stored_size += len(stored)

    def finish(self) -> str:
        """Write the rest; return the SHA-256 of the object in hexadecimal digits."""
        if self._chunk:
            self._put_chunk(self._chunk)
            self._chunk = bytearray()
        return self._digest.hexdigest()

    def close(self) -> None:
        """End the thread that it may have."""
        self._digest.close()

    def beside(self, small: Mapping[FileKind, bytes], segment: UploadedSegment) -> tuple[bytes, bytes]:
        places, body = dict[FileKind, tuple[int, int]](), b""
        for kind in INDEXES.values():
            data = small.get(kind, b"")
            if not data and kind is FileKind.TXN_INDEX:
                continue
            stored = data if self._seal is None or not data else self._seal(data)
            places[kind] = len(body), len(stored)
            body += stored
        manifest = Manifest(self._chunks(), places, self._form.is_compressed, self._encryption, segment)
        return body, encode_manifest(manifest)

    def _chunks(self) -> Chunks:
        chunk, size = self._form.chunk_bytes, self.size
        if self._compress is not None:
            return VariableChunks(chunk, size, np.cumsum(self._sizes, dtype=np.int64))
        overhead = 0 if self._seal is None else OVERHEAD_BYTES
        last = size - (-(-size // chunk) - 1) * chunk if size else 0
        return FixedChunks(chunk, size, chunk + overhead, last + overhead if size else 0)


def segment_id_of(sha256: str, beside: bytes) -> str:
    """Return the id of a segment: it begins with the SHA-256 of its object, so that it tells a damaged one.

    The end tells apart what has the same batches, and other things beside them: one that was cleaned to nothing again.
    """
    own = bytes.fromhex(sha256[:_ID_DIGITS]) + hashlib.sha256(beside).digest()
    return base64.urlsafe_b64encode(own[:16])[:22].decode()


def digest_begin_of(segment_id: str) -> str:
    """Return the first 24 hexadecimal digits of the SHA-256 that an id begins with."""
    return base64.urlsafe_b64decode(segment_id + "==").hex()[:_ID_DIGITS]
