"""Small tiers of every layout, the harms that may come to an object of one, and what is said and read of it then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pylogseg
from helpers import shell
from helpers.tiers import Key, Uploader, copy_locally
from pylogseg.testing import ManualClock

ISOLATIONS: tuple[Any, ...] = ("read_uncommitted", "read_committed")
Row = tuple[int, int, bytes | None, bytes | None]
#: Layouts of Aiven's plugin: bytes of a chunk, compressed, encrypted.
AIVEN = {
    "plain": (500, False, False),
    "zstd": (500, True, False),
    "aes": (500, False, True),
    "zstd-aes": (500, True, True),
}
LOCAL = "localtier"
AIVEN_KINDS = ("log", "indexes", "rsm-manifest")
LOCAL_KINDS = ("log", "index", "timeindex", "txnindex", "leader_epoch_checkpoint", "snapshot")
KINDS = {**dict.fromkeys(AIVEN, AIVEN_KINDS), LOCAL: LOCAL_KINDS}
UPLOADS = 4
#: Offsets of transactions before the end of a segment that end in the next.
_OPEN = 5


def write_partition(folder: Path) -> Path:
    """Write segments that two leaders share, with transactions: committed, aborted, over the bounds of segments."""
    # Each marker has a time of its own: on a fast machine two had the same, and time indexes an entry less.
    clock = ManualClock(1_800_000_000_000)
    settings = {"index_interval_bytes": 300, "segment_ms": 1 << 60}
    for epoch in range(UPLOADS + 1):
        with pylogseg.open_log(folder, leader_epoch=epoch, clock=clock, **settings) as log:
            first, second = log.producer(7), log.producer(8)
            time = 1_000_000 * epoch
            for part in range(2):
                log.append([(time + n, b"k%d" % n, b"plain %d " % n * 6) for n in range(6)])
                first.begin()
                first.append([(time + 10 + n, b"k%d" % n, b"transaction %d " % n * 4) for n in range(4)])
                second.begin()
                second.append([(time + 20, None, b"over the bounds of segments")])
                if epoch and part == 0:  # the first batches of a leader are in the segment of the one before
                    log.engine.roll()
                for end in (second.commit if part else second.abort, first.abort if part else first.commit):
                    clock.set_ms(clock.now_ms() + 1)
                    end()
                time += 1000
    return folder


class World(NamedTuple):
    """A tier of one partition."""

    layout: str
    url: str
    keys: Path | None
    stems: list[Path]  #: Of the uploads, by offset: the paths of their objects without a suffix.
    bounds: list[int]  #: Where the first begins, and each ends.
    rows: dict[str, list[Row]]  #: What it has, by isolation.

    @classmethod
    def make(cls, layout: str, folder: Path, disk: Path) -> World:
        """Upload a partition."""
        keys = None
        if layout == LOCAL:
            paths = copy_locally(folder, disk)
        else:
            chunk_bytes, is_compressed, is_encrypted = AIVEN[layout]
            keys = folder.with_name(f"{folder.name}-keys") if is_encrypted else None
            key = None if keys is None else Key.make("k", keys, bits=1536)
            paths = Uploader(folder, chunk_bytes, is_compressed, key).partition(disk)
        url = f"{'localtier' if layout == LOCAL else 'aiven'}+file://{folder}"
        bounds = [segment.base_offset for segment in pylogseg.open_dir(disk).partitions[0].segments]
        tier = pylogseg.open_tier(url, keys)
        return cls(
            layout, url, keys, [path.with_suffix("") for path in paths], bounds, {i: rows(tier, i) for i in ISOLATIONS}
        )

    def undecided(self, number: int) -> set[int]:
        """The offsets of transactions that were open where an upload begins."""
        return {self.bounds[number] - 1 - back for back in range(_OPEN)} if number else set()

    def object(self, number: int, kind: str) -> Path:
        """The path of an object."""
        return self.stems[number].with_suffix(f".{kind}")

    @contextmanager
    def changed(self, number: int, kind: str, data: bytes | None) -> Iterator[None]:
        """Have other bytes in an object for a while; None: no object."""
        path = self.object(number, kind)
        before = path.read_bytes()
        try:
            if data is None:
                path.unlink()
            else:
                path.write_bytes(data)
            yield
        finally:
            path.write_bytes(before)


def rows(tier: pylogseg.Disk, isolation: Any, **more: Any) -> list[Row]:
    """The records of a tier."""
    return [(r.offset, r.timestamp, r.key, r.value) for r in pylogseg.read(tier, isolation_level=isolation, **more)]


# ---- harms ----

Harm = Callable[[bytes, bytes, Random], bytes | None]


def _flip(data: bytes, _: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


#: Of an object, another one of the same kind, and a source of chances, what becomes of the object; None: it is gone.
HARMS: dict[str, Harm] = {
    "missing": lambda data, other, chance: None,
    "empty": lambda data, other, chance: b"",
    "cut by a byte": lambda data, other, chance: data[:-1],
    "cut in half": lambda data, other, chance: data[: len(data) // 2],
    "flipped": _flip,
    "doubled": lambda data, other, chance: data * 2,
    "a byte more": lambda data, other, chance: data + b"\0",
    "another's": lambda data, other, chance: other,
    "garbage": lambda data, other, chance: chance.randbytes(len(data)),
}


class Outcome(NamedTuple):
    """What came of a harm."""

    #: How `verify` says it: "damage", "unread" (both named), "notice", or "" if it says nothing.
    said: str
    #: Whether a reader that raises does.
    raised: bool
    #: The number of records that are not read any more, by isolation.
    lost: dict[str, int]
    #: What is wrong with how it was said and read.
    wrong: list[str]
    text: str


# ---- what cannot be known ----

FIRST, MIDDLE, LAST = 0, 1, UPLOADS - 1
_UNWHOLE = ("missing", "empty", "cut by a byte", "cut in half", "flipped", "doubled", "a byte more", "garbage")


class Blind(NamedTuple):
    """Harms that nothing stored proves, so that `verify` has no damage to say, or a reader no error."""

    kind: str
    harms: tuple[str, ...]
    uploads: tuple[int, ...]
    reason: str
    said: str = ""  #: By `verify`: nothing, a "notice", or the "damage".
    is_read: bool = True  #: Whether readers give the right records, or an error.

    def fits(self, kind: str, harm: str, number: int) -> bool:
        """Check whether it is of an object of an upload."""
        return kind == self.kind and harm in self.harms and number in self.uploads


_ENDS, _ALL = (FIRST, LAST), (FIRST, MIDDLE, LAST)
_UNDER_WAY = "an upload or a deletion that is not finished leaves the same"
_LOOKS_COMMITTED = "readers trust a transaction index, which has no checksum, as brokers do"
AIVEN_BLIND = (
    Blind("rsm-manifest", ("missing",), _ENDS, _UNDER_WAY, "notice", is_read=False),
    Blind("indexes", ("doubled", "a byte more"), _ALL, "nobody reads what lies behind what a manifest names", "notice"),
)
LOCAL_BLIND = (
    Blind("log", ("missing",), _ENDS, _UNDER_WAY, "notice", is_read=False),
    Blind("leader_epoch_checkpoint", ("missing",), _ENDS, _UNDER_WAY, "notice", is_read=False),
    Blind("index", ("missing",), _ENDS, _UNDER_WAY, "notice"),
    Blind("timeindex", ("missing",), _ENDS, _UNDER_WAY, "notice"),
    Blind("snapshot", _UNWHOLE, _ENDS, _UNDER_WAY, "notice"),
    Blind("log", ("cut in half",), (LAST,), "it ends with a batch", "damage", is_read=False),
    Blind("index", ("empty", "cut in half"), _ALL, "a setting says how many entries there are"),
    Blind("timeindex", ("empty",), _ALL, "a broker makes an empty one where it is missing"),
    Blind("timeindex", ("cut in half",), _ALL, "brokers leave cleaned segments without the last entry", "notice"),
    Blind("txnindex", ("cut in half",), _ALL, _LOOKS_COMMITTED, "damage", is_read=False),
    Blind("leader_epoch_checkpoint", ("cut by a byte",), _ALL, "it says the same without the end of its last line"),
    Blind("leader_epoch_checkpoint", ("another's",), (FIRST, MIDDLE), "the next one has the same epochs, and more"),
    Blind("snapshot", ("another's",), (LAST,), "an older one has nothing that is false for itself", "damage",
          is_read=False),
)  # fmt: skip


def blind_spots(layout: str) -> tuple[Blind, ...]:
    """What cannot be known in a layout."""
    return LOCAL_BLIND if layout == LOCAL else AIVEN_BLIND


def problems(layout: str, kind: str, harm: str, number: int, found: Outcome) -> list[str]:
    """What is wrong with an outcome, beside what cannot be known."""
    known = [each for each in blind_spots(layout) if each.fits(kind, harm, number)]
    wrong = [] if any(not each.is_read for each in known) else list(found.wrong)
    if harm == "flipped":
        # Much of a manifest, and some of an index, is for others or nobody: then nothing else is read.
        is_plain_index = kind == "txnindex" or (kind == "indexes" and not AIVEN[layout][2])
        if is_plain_index and found.said:
            wrong = [text for text in wrong if not text.startswith(ISOLATIONS[1])]  # `_LOOKS_COMMITTED`
        if kind == "rsm-manifest" and number == LAST and found.said:
            # Without the ends in it, transactions are open: a reader of committed records ends before them.
            wrong = [text for text in wrong if not text.startswith(ISOLATIONS[1])]
        if layout == LOCAL and kind == "log" and number == LAST and max(found.lost.values()) <= 1:
            wrong = []  # the base offset of the last batch: nothing but an index entry may know where a copy ends
        return wrong if found.said or not any(found.lost.values()) else [*wrong, "verify says nothing"]
    levels = {each.said for each in known} or {"damage"}
    if found.said not in levels:
        wrong.append(f"verify says {found.said or 'nothing'}, not {' or '.join(map(str, levels))}: {found.text}")
    return wrong


# ---- what is said and read ----


def harmed(world: World, number: int, kind: str, harm: str, chance: Random) -> bytes | None:
    """What becomes of an object of an upload."""
    other = world.object((number + 1) % UPLOADS, kind).read_bytes()
    return HARMS[harm](world.object(number, kind).read_bytes(), other, chance)


def judge(world: World, number: int, kind: str, data: bytes | None) -> Outcome:
    """Harm an object of an upload, see what is said and read, and bring it back."""
    with world.changed(number, kind, data):
        return _judged(world, number)


def _judged(world: World, number: int) -> Outcome:
    wrong = []
    done = shell.pylogseg("verify", world.url, *(["--keys", world.keys] if world.keys else []), "--json")
    findings = [row for row in done.rows if row["type"] == "finding"]
    named = [row for row in findings if _is_of(row, world, number)]
    said = next((level for level in ("damage", "unread", "notice") if any(r["level"] == level for r in named)), "")
    levels = {row["level"] for row in findings}
    code = 1 if "damage" in levels else 2 if "unread" in levels else 0
    if done.code != code or "Traceback" in done.err:
        wrong.append(f"exit code {done.code}: {done.err[-300:]}")
    strangers = [row for row in findings if row["level"] == "damage" and row not in named]
    strangers = [row for row in strangers if not _leads_to(row, world, number)]
    if strangers:
        wrong.append(f"found on others: {[(r['kind'], r['path'], r['reason']) for r in strangers]}")
    first, end = world.bounds[number], world.bounds[number + 1]
    tier = pylogseg.open_tier(world.url, world.keys)
    lost, raised = {}, False
    for isolation in ISOLATIONS:
        wanted = world.rows[isolation]
        try:
            if rows(tier, isolation) != wanted and not any("no upload" in note for note in tier.notes):
                wrong.append(f"{isolation}: other records, and no error")
        except pylogseg.PylogsegError as error:
            raised = True
            if not _names(str(error), world, number):
                wrong.append(f"the error does not name it: {error}")
        reader = pylogseg.read(tier, isolation_level=isolation, on_corrupt="skip")
        try:
            found = [(r.offset, r.timestamp, r.key, r.value) for r in reader]
        except pylogseg.PylogsegError as error:
            wrong.append(f"{isolation}, skip: {error}")
            continue
        # A transaction whose end lies in the harmed segment: by what is left it is open, or taken for committed.
        undecided = world.undecided(number) if isolation == ISOLATIONS[1] else set()
        wanted = [row for row in wanted if row[0] not in undecided]
        found = [row for row in found if row[0] not in undecided]
        gone = [row for row in wanted if row not in found]
        lost[isolation] = len(gone)
        if not set(found) <= set(wanted) or found != sorted(found):
            odd = [row for row in found if row not in wanted]
            wrong.append(f"{isolation}, skip: {len(odd)} records that there were not, such as {odd[:1]}")
        elsewhere = [row[0] for row in gone if not first <= row[0] < end]
        if elsewhere:
            wrong.append(f"{isolation}, skip: offsets of others are lost: {elsewhere[0]} to {elsewhere[-1]}")
        if gone and not reader.gaps and not tier.notes:
            wrong.append(f"{isolation}, skip: {len(gone)} records are lost without a word")
    return Outcome(said, raised, lost, wrong, "; ".join(f"{r['kind']}: {r['reason']}" for r in named))


def _names(text: str, world: World, number: int) -> bool:
    """Check whether a path or an error is of an upload: of an object, or of a file made of them."""
    folder = f"!/orders-0/{world.bounds[number]:020d}."
    snapshot = f"!/orders-0/{world.bounds[number + 1]:020d}.snapshot"
    names = [world.stems[number].name, folder, snapshot]
    if number == len(world.stems) - 1:
        names += ["!/orders-0/leader-epoch-checkpoint", ".snapshot"]  # behind whatever the segment's end is now
    return any(name in text for name in names)


def _leads_to(row: dict[str, Any], world: World, number: int) -> bool:
    """Check whether a finding on another upload says that the one before it, or the newest one, contradicts it."""
    if row["kind"] == "overlap":
        return "in the segment before" in row["reason"] and _names(row["path"], world, number + 1)
    return row["kind"] == "leader-epoch" and "in the checkpoint" in row["reason"] and number == len(world.stems) - 1


def _is_of(row: dict[str, Any], world: World, number: int) -> bool:
    """Check whether a finding is of an upload; the hole where it was counts too."""
    first, end = world.bounds[number], world.bounds[number + 1]
    is_hole = row["kind"] in ("tier-hole", "missing") and first <= row["offset"] <= row["lastOffset"] < end
    return is_hole or _names(row["path"], world, number)
