"""Tests of disk/tier/uploads.py. Every harm to every kind of object of a tier: it is named, nothing else is lost, and
readers say so.

`tests/soak/tier_harms.py` harms all uploads, and flips many more bits.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from helpers import shell
from helpers.harmed_objects import (
    FIRST,
    HARMS,
    KINDS,
    LAST,
    LOCAL,
    MIDDLE,
    Blind,
    World,
    blind_spots,
    harmed,
    judge,
    problems,
    write_partition,
)

import pylogseg


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_partition(tmp_path_factory.mktemp("disk") / "orders-0")


@pytest.fixture(scope="module")
def worlds(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    root = tmp_path_factory.mktemp("tiers")
    return {layout: World.make(layout, root / layout, disk) for layout in KINDS}


#: Each pair of a kind and a harm once, with one upload or another. Keys are slow: each sealed layout has a half.
TABLE = [
    (layout, kind, harm, (MIDDLE, LAST, MIDDLE, FIRST)[place % 4])
    for number, layout in enumerate(KINDS)
    for place, (kind, harm) in enumerate((kind, harm) for kind in KINDS[layout] for harm in HARMS)
    if "aes" not in layout or place % 2 == number % 2
]


def test_the_table_is_complete() -> None:
    there = {(layout.replace("zstd-aes", "aes"), kind, harm) for layout, kind, harm, _ in TABLE}
    wanted = {
        (layout.replace("zstd-aes", "aes"), kind, harm) for layout in KINDS for kind in KINDS[layout] for harm in HARMS
    }
    assert there == wanted


@pytest.mark.parametrize("layout", KINDS)
def test_harms(worlds: dict[str, World], layout: str) -> None:
    world, wrong = worlds[layout], []
    for number, (_, kind, harm, upload) in enumerate(case for case in TABLE if case[0] == layout):
        data = harmed(world, upload, kind, harm, Random(number))
        if data != world.object(upload, kind).read_bytes():
            found = judge(world, upload, kind, data)
            wrong += [f"{kind} {harm}, upload {upload}: {text}" for text in problems(layout, kind, harm, upload, found)]
    assert not wrong


BLIND = [(layout, spot) for layout in ("plain", LOCAL) for spot in blind_spots(layout)]


@pytest.mark.parametrize(("layout", "spot"), BLIND)
def test_blind_spots_are_blind(worlds: dict[str, World], layout: str, spot: Blind) -> None:
    """What is listed as not to be known is not known; what is known now has to leave the list."""
    world = worlds[layout]
    data = harmed(world, spot.uploads[-1], spot.kind, spot.harms[-1], Random(1))
    found = judge(world, spot.uploads[-1], spot.kind, data)
    assert found.said == spot.said
    assert bool(found.wrong) != spot.is_read


@pytest.mark.parametrize(
    ("upload", "kind", "harm"),
    [(LAST, "log", "missing"), (MIDDLE, "rsm-manifest", "empty"), (LAST, "rsm-manifest", "empty")],
)
def test_columns_and_commands(worlds: dict[str, World], upload: int, kind: str, harm: str) -> None:
    """Committed records behind and before what cannot be opened, as columns and by the shell too."""
    world = worlds["plain"]
    with world.changed(upload, kind, harmed(world, upload, kind, harm, Random(1))):
        tier = pylogseg.open_tier(world.url)
        reader = pylogseg.read(tier, isolation_level="read_committed", on_corrupt="skip")
        offsets = [record.offset for record in reader]
        assert reader.gaps
        for jobs in (1, 2):
            columns = pylogseg.read_arrow(tier, isolation_level="read_committed", on_corrupt="skip", jobs=jobs)
            assert columns.read_all()["offset"].to_pylist() == offsets
        done = shell.pylogseg("cat", world.url, "--isolation-level", "read_committed", "--on-corrupt", "skip")
        assert (done.code, [row["offset"] for row in done.rows]) == (1, offsets)
        assert world.stems[upload].name in done.err


@pytest.mark.parametrize("layout", ["plain", LOCAL])
def test_a_hole_is_told(worlds: dict[str, World], layout: str) -> None:
    """Offsets in the middle of the log that no upload has: who reads on behind them is told."""
    world = worlds[layout]
    with world.changed(MIDDLE, "rsm-manifest" if layout == "plain" else "log", None):
        first, last = world.bounds[MIDDLE], world.bounds[MIDDLE + 1] - 1
        (note,) = pylogseg.open_tier(world.url).notes
        assert f"orders-0: offsets {first} to {last} of the log are in no upload" in note
        assert note in shell.pylogseg("cat", world.url, "--limit", "1").err


@pytest.mark.parametrize("field", [(23, 5), (2, 1), (7, 6)])
def test_an_end_that_a_header_claims(worlds: dict[str, World], field: tuple[int, int]) -> None:
    """The last header of a copied segment claims more offsets than it has: the next upload is read all the same."""
    world = worlds[LOCAL]
    path = world.object(MIDDLE, "log")
    data = bytearray(path.read_bytes())
    data[int(pylogseg.scan(bytes(data)).batches.position[-1]) + field[0]] ^= 1 << field[1]
    found = judge(world, MIDDLE, "log", bytes(data))
    assert found.said == "damage"
    assert found.wrong == []
    assert found.lost["read_uncommitted"] == 1


@pytest.mark.parametrize("upload", [FIRST, MIDDLE])
@pytest.mark.parametrize("harm", [(b"\n0 0", b"\n8 0"), (b"0\n", b""), (b"1 26", b"9 26"), (b"0 0", b"1 0")])
def test_leader_epochs_that_are_not_those_of_the_batches(
    worlds: dict[str, World], upload: int, harm: tuple[bytes, bytes]
) -> None:
    """A file beside a copied segment that lies: the batches have their epochs too, and nothing is lost."""
    world = worlds[LOCAL]
    before = world.object(upload, "leader_epoch_checkpoint").read_bytes()
    found = judge(world, upload, "leader_epoch_checkpoint", before.replace(*harm) if harm[1] else b"")
    assert found.wrong == []
    assert not any(found.lost.values())
    assert found.said == "damage"
