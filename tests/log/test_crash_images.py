"""Tests of testing/state.py. Crash images: each is a state that the barriers allow, and careless writing is found out
by them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.images import CrashImage, Names, count_images, crash_images
from crash.torn_writes import contents, random_content
from helpers.checks import some
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.testing.memory import MemoryStorage
from pylogseg.testing.state import Operation, Trace


def begun(**files: bytes) -> MemoryStorage:
    """A storage with some durable files in the folder /d."""
    storage = MemoryStorage()
    storage.make_folder("/d")
    for name, data in files.items():
        storage.write_plain(f"/d/{name}", data)
    return MemoryStorage(storage.state)


def found(storage: MemoryStorage, name: str, **options: object) -> set[bytes | None]:
    """What the images of a trace have under a name."""
    path = f"/d/{name}"
    opened = [image.open() for image in crash_images(storage.trace, **options)]  # type: ignore[arg-type]
    return {each.read_all(path) if each.exists(path) else None for each in opened}


def test_nothing_done() -> None:
    images = list(crash_images(begun(a=b"x").trace))
    assert [(image.point, image.open().read_all("/d/a")) for image in images] == [(0, b"x")]


def test_unsynced_append() -> None:
    storage = begun(a=b"old")
    storage.open_log("/d/a").append(b"1234")
    assert found(storage, "a") == {b"old", b"old1234", b"old\0\0\0\0", b"old12\0\0"}


def test_unsynced_appends_lose_sizes_in_order_and_bytes_in_any() -> None:
    storage = begun(a=b"")
    file = storage.open_log("/d/a")
    file.append(b"A")
    file.append(b"B")
    assert found(storage, "a") == {b"", b"A", b"\0", b"AB", b"\0B", b"A\0", b"\0\0"}


def test_synced_append_stays() -> None:
    storage = begun(a=b"old")
    file = storage.open_log("/d/a")
    file.append(b"new")
    file.sync()
    storage.mark("acknowledged")
    file.append(b"?")
    images = list(crash_images(storage.trace))
    promised = {image.open().read_all("/d/a")[:6] for image in images if image.marks}
    assert promised == {b"oldnew"}
    assert {image.point for image in images if not image.marks} == {1}
    assert any("lost" in image.description for image in images)


def test_write_in_place() -> None:
    storage = begun(a=b"abcdefgh")
    storage.open_index("/d/a").put(2, b"XY")
    assert found(storage, "a") == {b"abcdefgh", b"abXYefgh", b"abXdefgh"}


def test_torn_at_a_sector() -> None:
    storage = begun(a=b"-" * 500)
    storage.open_log("/d/a").append(b"+" * 600)
    assert b"-" * 500 + b"+" * 12 + bytes(588) in found(storage, "a")
    assert b"-" * 500 + bytes(12) + b"+" * 588 in found(storage, "a")


def test_cut_and_written_again() -> None:
    """A cut that is lost brings the old bytes back; the bytes of a later write may be there all the same."""
    storage = begun(a=b"abcd")
    file = storage.open_log("/d/a")
    file.truncate(2)
    file.append(b"XY")
    assert found(storage, "a") == {b"abcd", b"ab", b"abXY", b"ab\0\0", b"abX\0"}


def test_replaced_whole() -> None:
    """The old file or the new one, with both kinds of names; the new one once the call has returned."""
    for rule in Names:
        storage = begun(a=b"old")
        storage.write_whole("/d/a", b"new bytes")
        storage.mark("written")
        assert found(storage, "a", rules=[rule]) == {b"old", b"new bytes"}
        promised = [image.open() for image in crash_images(storage.trace, rules=[rule]) if image.marks]
        assert {each.read_all("/d/a") for each in promised} == {b"new bytes"}


def careless_overwrite(storage: MemoryStorage) -> None:
    storage.write_synced("/d/a", b"new bytes")


def careless_rename(storage: MemoryStorage) -> None:
    storage.write_plain("/d/a.tmp", b"new bytes")
    storage.rename("/d/a.tmp", "/d/a")
    storage.sync_folder("/d")


def remove_and_rename(storage: MemoryStorage) -> None:
    storage.write_synced("/d/a.tmp", b"new bytes")
    storage.remove("/d/a")
    storage.rename("/d/a.tmp", "/d/a")
    storage.sync_folder("/d")


@pytest.mark.parametrize("careless", [careless_overwrite, careless_rename, remove_and_rename])
def test_careless_replacement_is_found_out(careless: Callable[[MemoryStorage], None]) -> None:
    storage = begun(a=b"old")
    careless(storage)
    assert found(storage, "a") - {b"old", b"new bytes"}


def test_new_file_needs_both_barriers() -> None:
    storage = begun()
    file = storage.open_log("/d/a")
    file.append(b"x")
    file.sync()
    assert found(storage, "a") == {None, b"", b"x", b"\0"}
    storage.sync_folder("/d")
    storage.mark("there")
    assert {image.open().read_all("/d/a") for image in crash_images(storage.trace) if image.marks} == {b"x"}


def names(image: CrashImage) -> str:
    return "".join(entry.name for entry in image.open().list_folder("/d"))


def test_names_in_order_and_free() -> None:
    storage = begun(a=b"", b=b"")
    storage.rename("/d/a", "/d/x")
    storage.rename("/d/b", "/d/y")
    assert {names(image) for image in crash_images(storage.trace, rules=[Names.JOURNAL])} == {"ab", "bx", "xy"}
    assert {names(image) for image in crash_images(storage.trace, rules=[Names.FREE])} == {"ab", "bx", "ay", "xy"}


def test_barrier_of_another_folder() -> None:
    """A journal makes all earlier names durable, other file systems those of the folder."""
    for rule, expected in ((Names.JOURNAL, {"x"}), (Names.FREE, {"a", "x"})):
        storage = begun(a=b"")
        storage.rename("/d/a", "/d/x")
        storage.make_folder("/e")
        storage.sync_folder("/")
        storage.mark("synced")
        assert {names(image) for image in crash_images(storage.trace, rules=[rule]) if image.marks} == expected


def test_rename_between_folders() -> None:
    """Half of it may be there where names are free: two names, or, if only the old folder was synced, none."""
    storage = begun(a=b"x")
    storage.make_folder("/d/sub")
    storage = MemoryStorage(storage.state)
    storage.rename("/d/a", "/d/sub/a")
    storage.sync_folder("/d")
    storage.mark("synced")
    states = [image.open() for image in crash_images(storage.trace, rules=[Names.FREE]) if image.marks]
    assert {(each.exists("/d/a"), each.exists("/d/sub/a")) for each in states} == {(False, False), (False, True)}


def test_removed_folder_and_moved_folder() -> None:
    storage = begun(a=b"x")
    storage.rename("/d", "/d-delete")
    storage.remove_folder("/d-delete")
    seen = set()
    for image in crash_images(storage.trace, rules=[Names.JOURNAL]):
        seen.add(tuple(path for path, _ in image.state.walk()))
    assert seen == {("d", "d/a"), ("d-delete", "d-delete/a"), ("d-delete",), ()}


def test_images_are_written_out(tmp_path: Path) -> None:
    storage = begun(a=b"old")
    storage.write_whole("/d/a", b"new")
    for number, image in enumerate(some(crash_images(storage.trace))):
        image.write_to(tmp_path / str(number))
        assert (tmp_path / str(number) / "d" / "a").read_bytes() == image.open().read_all("/d/a")


def test_an_image_starts_a_trace_of_its_own() -> None:
    storage = begun(a=b"old")
    storage.open_log("/d/a").append(b"new")
    image = next(iter(crash_images(storage.trace)))
    again = image.open()
    assert (again.trace.operations, found(again, "a")) == ([], {image.open().read_all("/d/a")})
    again.write_whole("/d/a", b"x")
    assert image.open().read_all("/d/a") != b"x"


def busy(seed: int, steps: int) -> tuple[MemoryStorage, list[tuple[int, bytes]]]:
    """Appends, syncs and cuts of one log in random order; what each mark promises: the durable length, the bytes."""
    choose, storage = random.Random(seed), begun(log=b"")
    file, content, durable = storage.open_log("/d/log"), b"", 0
    promises: list[tuple[int, bytes]] = []
    for step in range(steps):
        action = choose.random()
        if action < 0.6:
            data = bytes([step % 255 + 1]) * choose.choice((1, 10, 700))
            file.append(data)
            content += data
        elif action < 0.85:
            file.sync()
            durable = len(content)
            storage.mark(len(promises))
            promises.append((durable, content))
        elif len(content) > durable:
            size = choose.randint(durable, len(content))
            file.truncate(size)
            content = content[:size]
        storage.write_whole("/d/checkpoint", b"%d" % durable)
    return storage, promises


@given(st.integers(0, 2**32), st.integers(1, 12), st.sampled_from([20, 300]))
def test_promises_hold(seed: int, steps: int, limit: int) -> None:
    """In every image, listed or drawn, what was synced is there, and the checkpoint never runs ahead of it."""
    storage, promises = busy(seed, steps)
    for image in some(crash_images(storage.trace, limit, seed)):
        disk = image.open()
        log = disk.read_all("/d/log")
        if image.marks:
            durable, content = promises[len(image.marks) - 1]
            assert log[:durable] == content[:durable], image.description
        if disk.exists("/d/checkpoint"):
            assert int(disk.read_all("/d/checkpoint")) <= len(log), image.description


def test_drawn_and_listed() -> None:
    """The limit decides; a seed gives the same images again; no state comes twice for the same promises."""
    storage, _ = busy(3, 12)
    count = count_images(storage.trace)
    listed = list(crash_images(storage.trace, count))
    drawn = list(crash_images(storage.trace, 50, 7))
    assert 50 < len(listed) <= count
    assert 0 < len(drawn) <= 50
    assert [each.description for each in drawn] == [each.description for each in crash_images(storage.trace, 50, 7)]
    assert [each.description for each in drawn] != [each.description for each in crash_images(storage.trace, 50, 8)]
    for images in (listed, drawn):
        keys = {(image.state.fingerprint(), len(image.marks)) for image in images}
        assert len(keys) == len(images)


def test_points_between_barriers_add_nothing() -> None:
    """The claim by which only points before barriers are listed, for each prefix of a trace."""
    storage = begun(a=b"old")
    file = storage.open_log("/d/a")
    file.append(b"12")
    file.append(b"34")
    storage.open_log("/d/b").append(b"x")
    storage.rename("/d/b", "/d/c")
    file.truncate(5)
    whole = {image.state.fingerprint() for image in crash_images(storage.trace, 10**6)}
    for end in range(len(storage.trace.operations)):
        prefix = Trace(storage.trace.initial, storage.trace.operations[:end])
        assert {image.state.fingerprint() for image in crash_images(prefix, 10**6)} <= whole


operations = st.lists(
    st.one_of(
        st.builds(lambda p, d: Operation("write", 1, p, d), st.integers(0, 1200), st.binary(min_size=1, max_size=1500)),
        st.builds(lambda p: Operation("size", 1, p), st.integers(0, 2000)),
    ),
    min_size=1,
    max_size=5,
)


@given(st.binary(max_size=1100), operations, st.integers(0, 2**32))
def test_contents_are_made_of_what_was_written(base: bytes, pending: list[Operation], seed: int) -> None:
    """A size is one that the file had; a byte is an old one, one that a write put there, or zero."""
    sizes, last, by_place = {len(base)}, len(base), [{0, value} for value in base]
    for each in pending:
        end = each.position + len(each.data)
        last = each.position if each.kind == "size" else max(last, end)
        sizes.add(last)
        by_place += [{0} for _ in range(len(by_place), max(end, last))]
        for place, value in enumerate(each.data, each.position):
            by_place[place].add(value)
    listed = contents(base, pending)
    choose = random.Random(seed)
    for content in (*listed, *(random_content(base, pending, choose) for _ in range(20))):
        assert len(content.data) in sizes
        assert all(value in by_place[place] for place, value in enumerate(content.data))
    assert base in (listed[0].data, listed[-1].data)
    assert listed[0].lost == ""
    assert len(listed[0].data) == last
