"""Objects that are hashed while they are read, so that each is read once."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from pylogseg.disk.tier.digest import ObjectDigest
from pylogseg.disk.tier.files import BytesView
from pylogseg.disk.tier.slices import TierSegment
from pylogseg.disk.tier.uploads import AivenUpload, Objects, Stored
from pylogseg.env.executor import Advance
from pylogseg.env.filesystem import FileView
from pylogseg.errors import CorruptionError, StorageError

_PIECE_BYTES = 8 << 20
#: What several threads have read ahead of the first byte that is not hashed yet waits for it, up to so many bytes.
_WAITING_BYTES = 32 << 20
_MANIFEST = ".rsm-manifest"


def difference(found: str, sha256: str) -> str:
    """Return the fault of an object with a wrong SHA-256; for an object of a killed run, a prefix of it suffices."""
    if found.startswith(sha256):
        return ""
    return f"its SHA-256 is {found}, and was {sha256} when it was archived: it rotted, or is another object"


@contextlib.contextmanager
def compare_objects(segment: TierSegment | None) -> Iterator[Callable[[], list[CorruptionError]]]:
    """Hash the objects of a segment while they are read; yield the objects that differ from the point.

    Without a point, nothing is.
    """
    upload = None if segment is None else segment.upload
    if not isinstance(upload, AivenUpload) or upload.sha256 is None:
        yield list
        return
    objects, sums = upload.shared.objects, zip((upload.log, upload.indexes), upload.sha256, strict=True)
    wanted = [(stored, sha256) for stored, sha256 in sums if stored is not None and stored.size >= 0]
    assert isinstance(objects, ReadOnce)

    def differing() -> list[CorruptionError]:
        differences = []
        for stored, sha256 in wanted:
            with contextlib.suppress(StorageError):  # who reads it has met that
                if what := difference(objects.sha256(stored), sha256):
                    differences.append(CorruptionError(objects.name(stored.path), 0, what))
        return differences

    with objects.sum_objects((stored for stored, _ in wanted), lambda size: None):
        yield differing


class ReadOnce(Objects):
    """The objects below a URL. `sha256` tells the SHA-256 of an object that was read inside of `sum_objects`.

    Manifests are read when an archive is opened; theirs are in `manifests`, by paths, and do not travel.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._begin()

    def _begin(self) -> None:
        self.manifests: dict[str, str] = {}
        self._open: dict[str, _ObjectSum] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that pickle sends to another process: without open files and manifests."""
        return {name: value for name, value in self.__dict__.items() if name not in ("manifests", "_open")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def open(self, stored: Stored) -> FileView:
        shared = self._open.get(stored.path)
        if shared is not None:
            return shared.open_view()
        view = super().open(stored)
        if not stored.path.endswith(_MANIFEST):
            return view
        with view:
            data = bytes(view.read(0, view.size))
        self.manifests[stored.path] = hashlib.sha256(data).hexdigest()
        return BytesView(view.path, data)

    @contextlib.contextmanager
    def sum_objects(self, objects: Iterable[Stored], advance: Advance) -> Iterator[None]:
        """Hash some objects while they are read, of which no other thread reads any; `advance` gets their bytes."""
        mine = {stored.path: _ObjectSum(super(ReadOnce, self), stored, advance) for stored in objects}
        self._open.update(mine)
        try:
            yield
        finally:
            for path in mine:
                self._open.pop(path).close()

    def sha256(self, stored: Stored) -> str:
        """Return the SHA-256 of an object, of which the rest is read now; StorageError if it cannot be read."""
        return self._open[stored.path].finish_digest()


class _ObjectSum:
    """The SHA-256 of an object."""

    def __init__(self, objects: Any, stored: Stored, advance: Advance) -> None:
        self._objects, self._stored, self._advance = objects, stored, advance
        self._digest, self._done = ObjectDigest(), 0
        self._waiting: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._view: FileView | None = None
        self._whole: bytes | None = None

    def open_view(self) -> FileView:
        """Open the object; a small one is read whole, for it has several files in it."""
        if self._whole is None and self._stored.size <= _PIECE_BYTES:
            with self._objects.open(self._stored) as view:
                path, self._whole = view.path, bytes(view.read(0, view.size))
            self.add(0, self._whole)
            return BytesView(path, self._whole)
        if self._whole is not None:
            return BytesView(self._stored.path, self._whole)
        return _SummedObject(self._objects.open(self._stored), self)

    def add(self, position: int, data: Any) -> None:
        """Hash bytes that are next, or keep them until it is their turn; others were read before."""
        with self._lock:
            self._waiting[position] = data
            while (at := min(self._waiting, default=self._done + 1)) <= self._done:
                piece = memoryview(self._waiting.pop(at))[self._done - at :]
                self._digest.update(piece)
                self._done += len(piece)
                if len(piece):
                    self._advance(len(piece))
            if sum(map(len, self._waiting.values())) > _WAITING_BYTES:
                self._waiting.clear()

    def finish_digest(self) -> str:
        """Read the bytes that nobody has read yet, then return the digest."""
        with self._objects.open(self._stored) as view:
            while self._done < view.size:
                piece = view.read(self._done, _PIECE_BYTES)
                if not len(piece):
                    break
                self.add(self._done, piece)
        return self._digest.hexdigest()

    def close(self) -> None:
        self._digest.close()
        self._waiting.clear()
        self._whole = None


class _SummedObject:
    """An open object of which the bytes are hashed."""

    def __init__(self, view: FileView, into: _ObjectSum) -> None:
        self.path, self._view, self._into = view.path, view, into
        self.is_copied = getattr(view, "is_copied", False)

    @property
    def size(self) -> int:
        return self._view.size

    def read(self, position: int, size: int) -> Any:
        data = self._view.read(position, size)
        self._into.add(position, data)
        return data

    def drop(self, start: int, end: int) -> None:
        self._view.drop(start, end)

    def close(self) -> None:
        self._view.close()

    def __enter__(self) -> _SummedObject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
