"""An uploaded segment as a file that is read by position: chunks are fetched, opened, and kept for a while.

A read fetches only the chunks that it needs, neighbours by one request. A reader that goes on from where it ended has
the next ones fetched ahead, at most as many bytes as it has read so far and a chunk; so has one that goes on with the
next segment. A chunk that cannot be opened is an error of its own bytes: readers take it for a range that the disk
cannot read, and go on behind it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn, TypeVar

from pylogseg.disk.tier.keys import IV_BYTES, KeyRing, NotOpened, PublicKey, cipher, sealer
from pylogseg.disk.tier.manifest import Chunks, Encryption, original_size
from pylogseg.env.filesystem import Readable
from pylogseg.errors import StorageError
from pylogseg.format.codec_error import CodecError
from pylogseg.format.zstd_frames import decompress

#: Most bytes of one request, most that are fetched ahead of a reader, and most that are kept.
REQUEST_BYTES = 4 << 20
AHEAD_BYTES = 16 << 20
CACHE_BYTES = 48 << 20
#: Requests at one time.
THREADS = 8
#: Chunks that one read asks for at a time, and what one takes beside its bytes: a manifest may say that they are tiny.
_MOST_CHUNKS = 1024
_ENTRY_BYTES = 512

Opened = bytes | str
_Key = tuple[str, int]
_T = TypeVar("_T")


class Cache:
    """Opened chunks of many segments, the latest ones, and the requests that are under way. Safe for several threads.

    A chunk is bytes, or the reason why it could not be opened.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self.most = most_bytes
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._bytes = self._opening = self._in_order = 0
        self._chunks: OrderedDict[_Key, Future[Opened]] = OrderedDict()
        self._in_use: Counter[_Key] = Counter()
        self._pool: ThreadPoolExecutor | None = None

    def __reduce__(self) -> Any:
        return Cache, (self.most,)

    def get(self, path: str, first: int, last: int, load: Callable[[list[int]], list[Opened]], cost: Chunks) -> None:
        """Begin to load the chunks of a range that are not here, several neighbours by one call of `load`."""
        with self._lock:
            missing = []
            for chunk in range(first, last + 1):
                if (path, chunk) in self._chunks:
                    self._chunks.move_to_end((path, chunk))
                else:
                    missing.append(chunk)
            groups = list(_groups(missing, cost))
            for group in groups:
                for chunk in group:
                    self._chunks[path, chunk] = Future()
            if groups and self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="pylogseg-tier")
        for group in groups:
            assert self._pool is not None
            size = sum(original_size(cost, chunk) for chunk in group)
            self._pool.submit(self._run, path, group, load, size)

    def _run(self, path: str, group: list[int], load: Callable[[list[int]], list[Opened]], size: int) -> None:
        self._make_room(size)
        try:
            opened = load(group)
        except BaseException as error:
            with self._lock:  # the next read tries again
                futures = [self._chunks.pop((path, chunk)) for chunk in group]
                self._end_opening(size)
            for future in futures:
                future.set_exception(error)
            return
        with self._lock:
            self._bytes += sum(map(_cost, opened))
            for chunk in reversed(group):  # a chunk that is dropped then is gone, however late this thread is
                self._chunks[path, chunk].set_result(opened.pop())
            self._end_opening(size)
            self._shrink(1)

    def _make_room(self, size: int) -> None:
        """Drop chunks, and wait until chunks in use are free: a chunk above the bound is loaded alone."""
        with self._room:
            self._shrink(0, size)
            while (self._opening or self._bytes) and self._bytes + self._opening + size > self.most:
                self._room.wait()
                self._shrink(0, size)
            self._opening += size

    def _end_opening(self, size: int) -> None:
        self._opening -= size
        self._room.notify_all()

    def arrive(self, in_order: int) -> None:
        """Note that a reader came to the end of a segment: it may go on with the next one."""
        self._in_order = in_order

    def leave(self) -> int:
        """Return the number of bytes that the reader of a segment's start has read, at most the segment's size."""
        with self._lock:
            count, self._in_order = self._in_order, 0
            return count

    def _shrink(self, kept: int, size: int = 0) -> None:
        """Drop the least recently used chunks, but neither chunks in use nor the last few, however large."""
        if self._bytes + self._opening + size <= self.most:
            return
        done = [key for key, future in self._chunks.items() if future.done()]
        for key in done[: len(done) - kept]:
            if self._bytes + self._opening + size <= self.most:
                return
            if key not in self._in_use:
                self._bytes -= _cost(self._chunks.pop(key).result())

    def use(self, path: str, chunk: int, copied: Callable[[bytes], _T]) -> _T | str | None:
        """Return a function's copy of a chunk, or the error of opening it; None if the chunk was dropped."""
        key = path, chunk
        with self._lock:
            cached = self._chunks.get(key)
            if cached is None:
                return None
            self._chunks.move_to_end(key)
            self._in_use[key] += 1
        try:
            return _copy_opened(cached, copied)
        finally:
            del cached  # who waits for room may have that of this chunk
            with self._room:
                self._in_use[key] -= 1
                if not self._in_use[key]:
                    del self._in_use[key]
                self._room.notify_all()


def _cost(opened: Opened) -> int:
    return len(opened) + _ENTRY_BYTES


def _groups(missing: list[int], chunks: Chunks) -> Iterator[list[int]]:
    """Yield neighbours that fit into one request."""
    group: list[int] = []
    for chunk in missing:
        if group and (chunk != group[-1] + 1 or chunks.place(chunk)[1] - chunks.place(group[0])[0] > REQUEST_BYTES):
            yield group
            group = []
        group.append(chunk)
    if group:
        yield group


def _copy_opened(cached: Future[Opened], copied: Callable[[bytes], _T]) -> _T | str:
    opened = cached.result()
    return opened if isinstance(opened, str) else copied(opened)


def _copy(into: memoryview, begin: int, end: int, data: bytes) -> int:
    into[:] = memoryview(data)[begin:end]
    return end - begin


class Source(NamedTuple):
    """The object of a segment, and how its chunks are opened."""

    view: Readable  #: The object.
    chunks: Chunks
    #: Returns what a chunk's bytes become: so many, or the reason why not.
    open_chunk: Callable[[Any, int], Opened]


class ChunkView:
    """A segment in chunks, as a `FileView`."""

    is_copied = True

    def __init__(self, source: Source, cache: Cache) -> None:
        self._source, self._cache = source, cache
        self.path = source.view.path
        self._begin, self._next, self._in_order = -1, -1, 0

    @property
    def size(self) -> int:
        return self._source.chunks.file_size

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of bytes of the segment, or a whole chunk; StorageError with one that cannot be opened."""
        places = self._places(position, size)
        return b"".join([self._use(chunk, itemgetter(slice(begin, end))) for chunk, begin, end in places])

    def read_into(self, position: int, memory: memoryview) -> int:
        done = 0
        for chunk, begin, end in self._places(position, len(memory)):
            self._use(chunk, partial(_copy, memory[done : done + end - begin], begin, end))
            done += end - begin
        return done

    def _places(self, position: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Yield the chunks of a range, which are under way then, and where it begins and ends in each."""
        end = min(position + size, self.size)
        if position >= end:
            return
        chunks, chunk_size = self._source.chunks, self._source.chunks.chunk_size
        first, last = position // chunk_size, (end - 1) // chunk_size
        if self._next < 0 and position == 0:
            self._in_order = self._cache.leave()
        elif not self._begin < position <= self._next:  # who goes on reads the batch again that the last window cut
            self._in_order = 0
        # No more at a time than the cache has room for: what is fetched must be there when its turn comes.
        step = min(max(1, CACHE_BYTES // 4 // chunk_size), _MOST_CHUNKS)
        for begin in range(first, last + 1, step):
            stop = min(begin + step - 1, last)
            self._cache.get(self.path, begin, stop, self._load, chunks)
            if stop == last:
                ahead = min(-(-min(self._in_order, AHEAD_BYTES) // chunk_size), _MOST_CHUNKS)
                if chunk_size > self._cache.most // 4:  # it would drop what is read
                    ahead = 0
                behind = min(last + ahead, chunks.count - 1)
                if behind > last:
                    self._cache.get(self.path, last + 1, behind, self._load, chunks)
            for chunk in range(begin, stop + 1):
                start = chunk * chunk_size
                yield chunk, max(0, position - start), min(end - start, original_size(chunks, chunk))
        self._begin, self._next, self._in_order = position, end, self._in_order + end - position
        if end == self.size:
            self._cache.arrive(self._in_order)

    def _use(self, chunk: int, copied: Callable[[bytes], _T]) -> _T:
        """Return a copy of a chunk, made by a function: a reference to the chunk would keep other chunks in memory."""
        copy = None
        while copy is None:
            try:
                copy = self._cache.use(self.path, chunk, copied)
            except StorageError as error:
                raise StorageError(error.path, error.operation, error.reason, error.errno) from error
            if copy is None:  # it was dropped for others already
                self._cache.get(self.path, chunk, chunk, self._load, self._source.chunks)
        if isinstance(copy, str):
            self._fail(chunk, copy)
        return copy

    def lost_range(self, start: int, end: int) -> tuple[int, int] | None:
        """Return where the first chunk of a range that cannot be opened begins and ends; None if all can be.

        With a chunk that lies behind the end of the object go all that follow it.
        """
        chunks = self._source.chunks
        for chunk in range(start // chunks.chunk_size, -(-min(end, self.size) // chunks.chunk_size)):
            try:
                self._use(chunk, len)
            except StorageError as error:
                if not isinstance(error.__cause__, OSError) or error.errno != errno.EIO:
                    return None
                begin = chunk * chunks.chunk_size
                is_behind = chunks.place(chunk)[0] >= self._source.view.size
                return begin, self.size if is_behind else begin + original_size(chunks, chunk)
        return None

    def _load(self, group: list[int]) -> list[Opened]:
        source, (start, end) = self._source, (0, 0)
        start, end = source.chunks.place(group[0])[0], source.chunks.place(group[-1])[1]
        data = memoryview(source.view.read(start, end - start))
        opened: list[Opened] = []
        for chunk in group:
            begin, stop = source.chunks.place(chunk)
            if stop - start > len(data):
                opened.append(f"the object ends after {start + len(data)} bytes")
                continue
            plain = source.open_chunk(data[begin - start : stop - start], original_size(source.chunks, chunk))
            expected = original_size(source.chunks, chunk)
            if not isinstance(plain, str) and len(plain) != expected:
                plain = f"it becomes {len(plain)} bytes, and should {expected}"
            opened.append(plain)
        return opened

    def _fail(self, chunk: int, reason: str) -> NoReturn:
        begin, stop = self._source.chunks.place(chunk)
        start = chunk * self._source.chunks.chunk_size
        size = original_size(self._source.chunks, chunk)
        said = (
            f"chunk {chunk} of {self._source.chunks.count}, at {begin} to {stop} of the object and {start} to"
            f" {start + size} of the segment: {reason}"
        )
        raise StorageError(self.path, "read", said, errno.EIO) from OSError(errno.EIO, said)

    def drop(self, start: int, end: int) -> None:
        """Do nothing: the cache is bounded."""

    def close(self) -> None:
        close = getattr(self._source.view, "close", None)
        if close is not None:
            with contextlib.suppress(StorageError):
                close()

    def __enter__(self) -> ChunkView:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


#: What encryption adds to a chunk.
OVERHEAD_BYTES = IV_BYTES + 16
_AAD_BYTES = 32

Open = Callable[[Any, int], bytes | str]


def closer(key: PublicKey) -> tuple[Encryption, Callable[[Any], bytes]]:
    """Return a new key in its encrypted form for the manifest, and the function that encrypts chunks with it."""
    data_key, wrapped = key.new_data_key()
    encryption = Encryption(key.key_id, wrapped, os.urandom(_AAD_BYTES))
    return encryption, sealer(data_key, encryption.aad)


def opener(encryption: Encryption | None, is_compressed: bool, keys: KeyRing) -> Open:
    """Return the function that opens the chunks of a segment; `NotOpened` if there is no key for it.

    For a chunk and the size that it should have it returns the bytes, or the reason why there are none.
    """
    steps: list[Callable[[Any, int], Any]] = []
    if encryption is not None:
        aad, decrypt = encryption.aad, cipher(keys.unwrap(encryption.key_id, encryption.wrapped))

        def decrypt_chunk(data: Any, size: int) -> bytes:
            if len(data) < OVERHEAD_BYTES:
                raise NotOpened(f"{len(data)} bytes are too few for an encrypted chunk")
            return decrypt(bytes(data[:IV_BYTES]), data[IV_BYTES:], aad)

        steps.append(decrypt_chunk)
    if is_compressed:
        steps.append(_decompress_chunk)

    def open_chunk(data: Any, size: int) -> bytes | str:
        try:
            for step in steps:
                data = step(data, size)
        except NotOpened as error:
            return str(error)
        return bytes(data)

    return open_chunk


def _decompress_chunk(data: Any, size: int) -> bytes:
    try:
        return decompress(memoryview(data), size)
    except CodecError as error:
        raise NotOpened(f"it becomes more than {size} bytes" if error.is_limit else str(error)) from None
