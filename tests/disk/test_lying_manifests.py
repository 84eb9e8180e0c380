"""Tests of disk/tier/manifest.py. A manifest that claims what its segment does not have: it is named, and other uploads
keep their offsets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_tiers import World, damage_of, metadata
from helpers.shell import expect

import pylogseg

_LIES: list[tuple[dict[str, Any], str]] = [
    ({"endOffset": 732}, "its manifest ends at offset 732, and its last batch at 729"),
    ({"endOffset": 10**9}, "its manifest ends at offset 1000000000, and its last batch at 729"),
    ({"endOffset": 10**9, "segmentLeaderEpochs": {"1": 490, "2": 100_000}}, "its last batch at 729"),
    (
        {"segmentLeaderEpochs": {"99": 490}},
        "its manifest has leader epoch 99, and the leader epochs beside the segment",
    ),
    ({"segmentLeaderEpochs": {"1": 490, "5": 600}}, "its manifest has leader epoch 5"),
]


@pytest.mark.parametrize(("lie", "reason"), _LIES)
def test_in_the_middle(tmp_path: Path, lie: dict[str, Any], reason: str) -> None:
    world = World(tmp_path)
    assert world.bases[2:4] == [490, 730]
    world.change(2, lambda fields: metadata(fields).update(lie))
    assert world.offsets() == list(range(world.bases[-1]))
    done = expect(world.verify(), 1)
    (said,) = damage_of(done)
    assert (said["kind"], said["path"]) == ("tier-manifest", str(world.object(2, "log")))
    assert reason in said["reason"]
    assert said["offset"] is not None


def test_two_lies(tmp_path: Path) -> None:
    """One beside the other."""
    world = World(tmp_path)
    world.change(1, lambda fields: metadata(fields).update(endOffset=900))
    world.change(2, lambda fields: metadata(fields).update(endOffset=731))
    assert world.offsets() == list(range(world.bases[-1]))
    assert [row["path"] for row in damage_of(world.verify())] == [str(world.object(n, "log")) for n in (1, 2)]


def test_without_a_key(tmp_path: Path) -> None:
    """Who cannot look into the segments still lists what the manifests say."""
    world = World(tmp_path)
    world.change(2, lambda fields: metadata(fields).update(endOffset=732))
    for path in world.keys.glob("*.pem"):
        path.rename(path.with_name("another.pem"))
    assert [part.name for part in pylogseg.open_tier(world.url, world.keys).partitions] == ["orders-0"]
