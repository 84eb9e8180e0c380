"""What every storage does: one class of tests for the real disk and for the one in memory."""

from __future__ import annotations

import pickle
import socket

import pytest

from pylogseg.env.storage import Storage
from pylogseg.errors import ClosedError, DirectoryLockedError, RequestError, StorageError, is_missing


class StorageConformance:
    """Subclasses give the fixtures ``storage`` and ``folder``, a path of an empty folder in it."""

    @pytest.fixture
    def path(self, storage: Storage, folder: str) -> str:
        return storage.join(folder, "a.log")

    def test_append_and_read(self, storage: Storage, path: str) -> None:
        file = storage.open_log(path)
        assert [file.append(data) for data in (b"one", bytearray(b"two"), memoryview(b"three"))] == [0, 3, 6]
        assert file.append_many([b"4", memoryview(b"56"), b""]) == 11
        assert file.append_many([]) == file.size == 14
        assert file.append(b"") == 14
        assert file.read(0, 100) == b"onetwothree456" == storage.read_all(path)
        assert file.read(3, 3) == b"two"
        assert (file.read(14, 5), file.read(20, 5), file.read(0, 0), file.read(3, -1)) == (b"", b"", b"", b"")

    def test_views(self, storage: Storage, path: str) -> None:
        file = storage.open_log(path)
        assert bytes(file.view(0, 10)) == b""
        file.append(b"0123456789")
        first = file.view(2, 100)
        assert first.readonly
        assert bytes(first) == b"23456789"
        file.append(b"abc")
        assert bytes(file.view(8, 100)) == b"89abc"
        assert (bytes(file.view(13, 1)), bytes(file.view(50, 1)), bytes(first)) == (b"", b"", b"23456789")
        file.close()
        assert bytes(first) == b"23456789"

    @pytest.mark.parametrize("cut", [0, 1, 4095, 4096, 5000, 12_287])
    def test_views_keep_what_is_cut_off(self, storage: Storage, path: str, cut: int) -> None:
        old, new = bytes(range(256)) * 48, b"\xff" * 20_000
        file = storage.open_log(path)
        file.append(old)
        views = [file.view(0, len(old)), file.view(cut, 10), file.view(len(old) - 1, 1)]
        file.truncate(cut)
        assert file.size == cut == len(storage.read_all(path))
        file.append(new)
        assert [bytes(view) for view in views] == [old, old[cut : cut + 10], old[-1:]]
        assert bytes(file.view(0, 1 << 20)) == file.read(0, 1 << 20) == old[:cut] + new

    def test_truncate(self, storage: Storage, path: str) -> None:
        file = storage.open_log(path)
        file.append(b"0123456789")
        for bad in (-1, 11):
            with pytest.raises(RequestError, match="has 10"):
                file.truncate(bad)
        file.truncate(10)
        file.truncate(4)
        assert file.append(b"x") == 4
        assert storage.read_all(path) == b"0123x"

    def test_preallocated(self, storage: Storage, path: str) -> None:
        file = storage.open_log(path, preallocate_bytes=100)
        assert (file.size, len(storage.read_all(path))) == (0, 100)
        assert bytes(file.view(0, 100)) == b""
        assert (file.append(b"abc"), file.size, len(storage.read_all(path))) == (0, 3, 100)
        assert (file.read(0, 100), bytes(file.view(0, 100))) == (b"abc", b"abc")
        again = storage.open_log(path, preallocate_bytes=500)
        assert again.size == 100  # after a crash: the zeros count until recovery cuts them
        file.truncate(3)
        assert storage.read_all(path) == b"abc"
        over = storage.open_log(storage.join(storage.split(path)[0], "b.log"), preallocate_bytes=2)
        over.append(b"abcdef")
        assert storage.read_all(over.path) == b"abcdef"

    def test_open_log(self, storage: Storage, path: str) -> None:
        with pytest.raises(StorageError, match=r"a\.log: cannot open"):
            storage.open_log(path, create=False)
        storage.write_plain(path, b"xyz")
        file = storage.open_log(path, create=False)
        assert (file.size, file.append(b"!"), file.read(0, 9)) == (3, 3, b"xyz!")
        with pytest.raises(StorageError, match="cannot create"):
            storage.open_log(storage.join(storage.join(storage.split(path)[0], "none"), "a.log"))

    def test_send_to(self, storage: Storage, path: str) -> None:
        file = storage.open_log(path)
        file.append(b"0123456789")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert file.send_to(ours, 3, 100) == 7
            assert theirs.recv(100) == b"3456789"
            assert (file.send_to(ours, 10, 5), file.send_to(ours, 0, 0)) == (0, 0)
            theirs.close()
            with pytest.raises(ConnectionError):
                file.send_to(ours, 0, 10)

    def test_times(self, storage: Storage, path: str) -> None:
        file = storage.open_log(path)
        file.append(b"x")
        assert file.modified_ms() == storage.stat(path).modified_ms > 1_600_000_000_000
        file.set_modified_ms(1_700_000_000_123)
        assert file.modified_ms() == storage.stat(path).modified_ms == 1_700_000_000_123

    def test_closed(self, storage: Storage, path: str) -> None:
        file = storage.open_log(path)
        file.append(b"x")
        index = storage.open_index(path + ".index", 16)
        for each in (file, index, file, index):
            each.close()
        for use in (
            lambda: file.append(b"y"),
            lambda: file.read(0, 1),
            file.sync,
            index.sync,
            lambda: index.put(0, b"1"),
        ):
            with pytest.raises(ClosedError):
                use()
        assert storage.read_all(path) == b"x"

    def test_index(self, storage: Storage, path: str) -> None:
        with pytest.raises(StorageError, match="cannot open"):
            storage.open_index(path)
        index = storage.open_index(path, 100_000)
        assert (index.created, index.size, len(index.buffer)) == (True, 100_000, 100_000)
        buffer = index.buffer
        index.put(99_992, b"12345678")
        index.put(8, memoryview(b"abcdefgh"))
        assert bytes(buffer[:16]) == bytes(8) + b"abcdefgh" == index.read(0, 16)
        assert buffer.readonly
        for position, data in ((99_993, b"12345678"), (-1, b"x"), (100_000, b"x")):
            with pytest.raises(RequestError, match="has 100000"):
                index.put(position, data)
        index.sync()
        assert storage.read_all(path) == bytes(8) + b"abcdefgh" + bytes(99_976) + b"12345678"
        again = storage.open_index(path, 5)
        assert (again.created, again.size, again.read(8, 4)) == (False, 100_000, b"abcd")
        assert bytes(again.buffer[8:12]) == again.read(8, 4)

    def test_index_resize(self, storage: Storage, path: str) -> None:
        index = storage.open_index(path, 10_000)
        index.put(0, b"x" * 10_000)
        held = index.buffer
        index.resize(20)
        assert (index.size, bytes(index.buffer)) == (20, b"x" * 20)
        assert bytes(held) == b"x" * 10_000
        with pytest.raises(RequestError):
            index.put(20, b"y")
        index.resize(9000)
        index.put(8992, b"zzzzzzzz")
        assert bytes(index.buffer) == b"x" * 20 + bytes(8972) + b"z" * 8 == storage.read_all(path)
        assert bytes(held) == b"x" * 10_000
        index.resize(0)
        assert (bytes(index.buffer), storage.read_all(path)) == (b"", b"")
        with pytest.raises(RequestError):
            index.resize(-1)
        index.resize(8)
        index.put(0, b"12345678")
        assert bytes(index.buffer) == b"12345678"

    def test_names(self, storage: Storage, folder: str) -> None:
        a, b, sub = (storage.join(folder, name) for name in ("a", "b", "sub"))
        assert not storage.exists(a)
        assert not storage.remove(a)
        storage.write_plain(a, b"one")
        storage.write_synced(b, b"two")
        storage.rename(a, b)
        storage.make_folder(storage.join(sub, "deep"))
        storage.make_folder(sub)
        storage.write_whole(storage.join(sub, "x"), b"new")
        storage.write_whole(storage.join(sub, "x"), b"newer")
        found = storage.list_folder(folder)
        assert [(entry.name, entry.is_dir, entry.size) for entry in found] == [("b", False, 3), ("sub", True, 0)]
        assert storage.read_all(b) == b"one"
        assert storage.split(b) == (folder, "b")
        storage.rename(sub, storage.join(folder, "moved"))
        assert storage.read_all(storage.join(storage.join(folder, "moved"), "x")) == b"newer"
        assert [entry.name for entry in storage.list_folder(storage.join(folder, "moved"))] == ["deep", "x"]
        storage.sync_file(b)
        storage.sync_folder(folder)
        storage.sync_file(a)
        assert storage.remove(b)
        storage.remove_folder(storage.join(folder, "moved"))
        storage.remove_folder(storage.join(folder, "moved"))
        assert storage.list_folder(folder) == []

    def test_errors_name_the_file(self, storage: Storage, folder: str) -> None:
        missing = storage.join(folder, "missing")
        for operation, call in {
            "read": lambda: storage.read_all(missing),
            "list": lambda: storage.list_folder(missing),
            "stat": lambda: storage.stat(missing),
            "sync": lambda: storage.sync_folder(missing),
            "lock": lambda: storage.lock(missing),
            "rename to x": lambda: storage.rename(missing, "x"),
            "write": lambda: storage.write_plain(storage.join(missing, "x"), b""),
        }.items():
            with pytest.raises(StorageError) as caught:
                call()
            assert caught.value.path.startswith(missing)
            assert caught.value.operation in (operation, "create")

    def test_errors_say_that_nothing_is_there(self, storage: Storage, folder: str) -> None:
        """Who reads a file tells one that is absent from one that cannot be read."""
        file = storage.join(folder, "missing")
        for call in (
            lambda: storage.read_all(file),
            lambda: storage.stat(file),
            lambda: storage.list_folder(file),
            lambda: storage.rename(file, storage.join(folder, "other")),
            lambda: storage.open_log(file, create=False),
            lambda: storage.open_index(file),
        ):
            with pytest.raises(StorageError) as caught:
                call()
            assert is_missing(caught.value), caught.value
        storage.write_plain(storage.join(folder, "there"), b"")
        for call in (lambda: storage.read_all(folder), lambda: storage.list_folder(storage.join(folder, "there"))):
            with pytest.raises(StorageError) as caught:
                call()
            assert not is_missing(caught.value), caught.value

    def test_rename_of_an_open_file(self, storage: Storage, path: str) -> None:
        file = storage.open_log(path)
        index = storage.open_index(path + ".index", 16)
        file.append(b"abc")
        index.put(0, b"12345678")
        file.rename(path + ".deleted")
        index.rename(path + ".index.deleted")
        file.append(b"def")
        assert (file.path, index.path) == (path + ".deleted", path + ".index.deleted")
        assert storage.read_all(path + ".deleted") == b"abcdef"
        assert bytes(index.buffer[:8]) == b"12345678"
        assert not storage.exists(path)

    def test_write_over(self, storage: Storage, path: str) -> None:
        storage.write_plain(path, b"0123456789")
        storage.write_plain(path, b"abc")
        assert storage.read_all(path) == b"abc"
        storage.write_synced(path, b"")
        assert storage.read_all(path) == b""

    def test_lock(self, storage: Storage, folder: str) -> None:
        lock = storage.lock(folder)
        assert lock.path == storage.join(folder, ".lock")
        with pytest.raises(DirectoryLockedError, match=r"\.lock: cannot lock: this process") as caught:
            storage.lock(folder)
        assert caught.value.operation == "lock"
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (type(copy), str(copy)) == (DirectoryLockedError, str(caught.value))
        lock.release()
        again = storage.lock(folder)
        lock.release()
        with pytest.raises(StorageError):
            storage.lock(folder)
        again.release()
        assert storage.list_folder(folder) == []
