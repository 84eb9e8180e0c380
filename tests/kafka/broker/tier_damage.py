"""Damage of objects in a tier of Aiven's plugin, and what has to be said of each; see tiers_aiven.py."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import zstandard
from aiven_plugin import Place
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from helpers.tiers import Key

import pylogseg
from pylogseg.disk.tier.keys import KEYS_OPTION, KeyRing
from pylogseg.disk.tier.manifest import Manifest, encode_sizes, parse_manifest
from pylogseg.disk.tier.tier import Tier

#: What a command may take more than it takes of the same tier without damage.
MORE_BYTES = 64 << 20
_BOMB_BYTES = 1 << 30
Offsets = set[tuple[int, int]]
Fields = dict[str, Any]


class Victim(NamedTuple):
    """An upload in the middle of the log, which alone has its offsets."""

    stem: str  #: Its objects without their suffixes.
    partition: int
    first: int
    end: int
    manifest: Manifest
    fields: Fields
    batches: list[tuple[int, int, int, int]]  #: Where each begins and ends in the segment, and its offsets.

    @property
    def offsets(self) -> Offsets:
        return {(self.partition, offset) for offset in range(self.first, self.end)}

    def in_chunks(self, chunks: list[int]) -> Offsets:
        """The offsets of the batches that have bytes in some chunks."""
        size = self.manifest.chunks.chunk_size
        return {
            (self.partition, offset)
            for begin, end, first, last in self.batches
            if any(begin < (chunk + 1) * size and end > chunk * size for chunk in chunks)
            for offset in range(first, last + 1)
        }

    def stored_from(self, position: int) -> list[int]:
        """The chunks that have bytes of the object from a position on."""
        places = self.manifest.chunks
        return [chunk for chunk in range(places.count) if places.place(chunk)[1] > position]


class Case(NamedTuple):
    """A damage.

    Attributes
    ----------
    name : str
    change : function
        Of a victim and its objects by suffix; returns what becomes of them. None: it is removed.
    loses : str
        "nothing", the batches that have bytes of "chunks" that are gone, "all" of the segment, or "either".
    says : str
        What a finding says: a regular expression.
    """

    name: str
    change: Callable[[Victim, dict[str, bytes]], dict[str, bytes | None]]
    loses: str
    says: str
    #: Of those of the victim, the chunks that cannot be opened.
    chunks: Callable[[Victim], list[int]] = lambda _: []


class Said:
    """All that was printed, and all errors."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def check(self, secrets: list[str]) -> None:
        """No secret may be in it."""
        shown = [text for text in self.texts for secret in secrets if secret in text]
        if shown or len(secrets) < 4:
            sys.exit(f"{len(shown)} texts of {len(self.texts)} show one of {len(secrets)} secrets: {shown[:1]}")
        print(f"none of {len(secrets)} secrets in {sum(map(len, self.texts)):,} characters of output", flush=True)


def run(said: Said, words: list[object], codes: tuple[int, ...]) -> tuple[str, int]:
    """Run a command; what it prints, and the most memory that it took. Its exit code has to be one of `codes`."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        process = subprocess.Popen([sys.executable, "-m", "pylogseg", *map(str, words)], stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text, errors = out.read(), err.read()
    said.texts += [text, errors]
    if process.returncode not in codes or "Traceback" in errors:
        sys.exit(
            f"pylogseg {' '.join(map(str, words))}: exit code {process.returncode}\n{text[-3000:]}{errors[-3000:]}"
        )
    return text, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def offsets_of(said: Said, place: Place, ring: Path) -> Offsets:
    """All that can be read, and what is said of the rest."""
    reader = pylogseg.read(
        pylogseg.open_tier(place.url, ring, storage_options=place.storage), "orders", on_corrupt="skip"
    )
    found = {(record.partition, record.offset) for record in reader}
    said.texts += [repr(gap) + str(gap) for gap in reader.gaps]
    try:
        list(pylogseg.read(pylogseg.open_tier(place.url, ring, storage_options=place.storage), "orders"))
    except pylogseg.PylogsegError as error:
        said.texts += [repr(error), str(error)]
    return found


def victims(place: Place, ring: Path) -> list[Victim]:
    """Uploads of several chunks that have offsets which no other has, with some of the log before and behind them."""
    tier, found = Tier.open(place.url, {**place.storage, KEYS_OPTION: ring}), []
    paths = {path[-35:-13]: path for path in place.objects(".rsm-manifest")}
    for log in tier.logs:
        ranges = [(u.segment.start_offset, u.segment.end_offset) for u in
                  tier.by_partition[log.topic, log.partition, log.topic_id]]  # fmt: skip
        for each in log.segments[1:-2]:
            segment = each.upload.segment
            first, last = segment.start_offset, segment.end_offset
            others = sum(start <= last and first <= end for start, end in ranges) > 1
            if others or not (each.starts_whole and each.ends_whole):
                continue
            path = paths[segment.segment_id]
            data = place.files.cat_file(path)
            manifest = parse_manifest(data, path)
            if manifest.chunks.count > 2:
                stem = path.removesuffix(".rsm-manifest")
                with each.upload.open() as view:
                    rows = pylogseg.scan(view.read(0, view.size)).batches
                columns = (rows.position, rows.position + rows.size, rows.base_offset, rows.last_offset)
                batches = list(zip(*(column.tolist() for column in columns), strict=True))
                found.append(Victim(stem, log.partition, first, last + 1, manifest, json.loads(data), batches))
    return found


def told(change: Callable[[Fields], object]) -> Callable[[Victim, dict[str, bytes]], dict[str, bytes | None]]:
    """A manifest that lies."""

    def lie(victim: Victim, _: dict[str, bytes]) -> dict[str, bytes | None]:
        fields = json.loads(json.dumps(victim.fields))
        change(fields)
        return {"rsm-manifest": json.dumps(fields).encode()}

    return lie


def metadata(fields: Fields) -> Fields:
    """What a manifest says of the segment."""
    found: Fields = fields["remoteLogSegmentMetadata"]
    return found


def more(name: str, by: int) -> Callable[[Fields], object]:
    """A number of the segment that is another one."""
    return lambda fields: metadata(fields).update({name: metadata(fields)[name] + by})


def flipped(suffix: str) -> Callable[[Victim, dict[str, bytes]], dict[str, bytes | None]]:
    """One bit in the middle."""

    def flip(_: Victim, there: dict[str, bytes]) -> dict[str, bytes | None]:
        data = bytearray(there[suffix])
        data[len(data) // 2] ^= 4
        return {suffix: bytes(data)}

    return flip


def cut(suffix: str) -> Callable[[Victim, dict[str, bytes]], dict[str, bytes | None]]:
    """The last third is gone."""
    return lambda _, there: {suffix: there[suffix][: len(there[suffix]) * 2 // 3]}


def without_a_chunk(victim: Victim, there: dict[str, bytes]) -> dict[str, bytes | None]:
    """The second chunk is not there, and the next ones lie in its place."""
    begin, end = victim.manifest.chunks.place(1)
    return {"log": there["log"][:begin] + there["log"][end:]}


def of_another(victims: list[Victim]) -> Callable[[Victim, dict[str, bytes]], dict[str, bytes | None]]:
    """The data key of another segment."""

    def swap(victim: Victim, _: dict[str, bytes]) -> dict[str, bytes | None]:
        other = next(v for v in victims if v.stem != victim.stem)
        return told(lambda f: f["encryption"].update(dataKey=other.fields["encryption"]["dataKey"]))(victim, {})

    return swap


def bomb(ring: Path) -> Callable[[Victim, dict[str, bytes]], dict[str, bytes | None]]:
    """A chunk that is well encrypted and becomes a gigabyte."""

    def explode(victim: Victim, there: dict[str, bytes]) -> dict[str, bytes | None]:
        manifest, encryption = victim.manifest, victim.manifest.encryption
        assert encryption is not None
        aes, iv = AESGCM(KeyRing(ring).unwrap(encryption.key_id, encryption.wrapped)), os.urandom(12)
        big = iv + aes.encrypt(iv, zstandard.compress(bytes(_BOMB_BYTES)), encryption.aad)
        places = [manifest.chunks.place(chunk) for chunk in range(manifest.chunks.count)]
        chunks = [there["log"][begin:end] for begin, end in places]
        chunks[1] = big
        fields = json.loads(json.dumps(victim.fields))
        sizes = zstandard.compress(encode_sizes(list(map(len, chunks))))
        fields["chunkIndex"]["transformedChunks"] = base64.b64encode(sizes).decode()
        return {"log": b"".join(chunks), "rsm-manifest": json.dumps(fields).encode()}

    return explode


def _packed(sizes: bytes) -> Callable[[Fields], object]:
    text = base64.b64encode(zstandard.compress(sizes)).decode()
    return lambda fields: fields["chunkIndex"].update(transformedChunks=text)


def cases(ring: Path, all_victims: list[Victim]) -> list[Case]:
    """What is done, and what has to be said of it."""
    return [
        Case("segment cut", cut("log"), "chunks", r"bytes|the object ends after",
             lambda v: v.stored_from(v.manifest.chunks.object_size * 2 // 3)),
        Case("segment flipped", flipped("log"), "chunks", r"chunk \d+ of \d+.*its tag does not match",
             lambda v: v.stored_from(v.manifest.chunks.object_size // 2)[:1]),
        Case("segment without a chunk", without_a_chunk, "chunks", r"chunk 1 of",
             lambda v: list(range(1, v.manifest.chunks.count))),
        Case("segment gone", lambda *_: {"log": None}, "all", r"not there|missing"),
        Case("segment empty", lambda *_: {"log": b""}, "all", r"bytes"),
        Case("indexes cut", cut("indexes"), "nothing", r"bytes"),
        Case("indexes flipped", flipped("indexes"), "nothing", r"its tag does not match"),
        Case("indexes gone", lambda *_: {"indexes": None}, "nothing", r"not there|missing"),
        Case("manifest cut", cut("rsm-manifest"), "all", r"no JSON"),
        Case("manifest gone", lambda *_: {"rsm-manifest": None}, "all", r"no upload"),
        Case("manifest: a later end", told(more("endOffset", 3)), "nothing", r"ends at offset"),
        Case("manifest: a much later end", told(more("endOffset", 10**9)), "nothing", r"ends at offset"),
        Case("manifest: an earlier end", told(more("endOffset", -3)), "nothing", r"ends at offset|no upload"),
        Case("manifest: another start", told(more("startOffset", 1)), "all", r"the manifest is of another segment"),
        Case("manifest: another time", told(more("maxTimestampMs", 5)), "nothing", r"the largest timestamp"),
        Case("manifest: an epoch of the future", told(lambda f: metadata(f).update(
            segmentLeaderEpochs={"99": metadata(f)["startOffset"]})), "either", r"epoch"),
        Case("manifest: not compressed", told(lambda f: f.update(compression=False)), "all", r"bytes"),
        Case("manifest: not encrypted", told(lambda f: f.pop("encryption")), "all", r"chunk|bytes"),
        Case("manifest: a longer segment", told(lambda f: f["chunkIndex"].update(
            originalFileSize=f["chunkIndex"]["originalFileSize"] + 1)), "either", r"bytes|chunk"),
        Case("manifest: another data key", of_another(all_victims), "all", r"its tag does not match"),
        Case("manifest: a broken data key", told(lambda f: f["encryption"].update(
            dataKey=f["encryption"]["dataKey"][:-8] + "AAAAAAA=")), "all", r"data key"),
        Case("manifest: indexes elsewhere", told(lambda f: f["segmentIndexes"]["offset"].update(position=7)),
             "nothing", r"its tag does not match"),
        Case("bomb: sizes of chunks", told(_packed(bytes(11 << 20))), "all", r"more than 10485760 bytes"),
        Case("bomb: number of chunks", told(_packed(b"\x7f\xff\xff\xff" + bytes(4) + b"\4" + bytes(4))), "all",
             r"the list of chunk sizes"),
        Case("bomb: a chunk", bomb(ring), "chunks", r"it becomes more than", lambda _: [1]),
    ]  # fmt: skip


@contextmanager
def changed(place: Place, stem: str, what: dict[str, bytes | None]) -> Iterator[None]:
    """Objects that are others for a while."""
    before = {suffix: place.files.cat_file(f"{stem}.{suffix}") for suffix in what}
    try:
        for suffix, data in what.items():
            path = f"{stem}.{suffix}"
            if data is None:
                place.files.rm_file(path)
            else:
                place.files.pipe_file(path, data)
        yield
    finally:
        for suffix, data in before.items():
            place.files.pipe_file(f"{stem}.{suffix}", data)


def _findings(text: str) -> list[Fields]:
    rows = [json.loads(line) for line in text.splitlines()]
    return [row for row in rows if row["type"] == "finding" and row["level"] == "damage"]


def _is_of(row: Fields, victim: Victim) -> bool:
    """Check whether a finding is of a victim: of one of its objects, of a file made of them, a hole in its place."""
    folder = f"!/orders-{victim.partition}"
    snapshot = f"{folder}/{victim.end:020d}.snapshot"  # the state of producers behind it
    names = (os.path.basename(victim.stem), f"{folder}/{victim.first:020d}.", snapshot)
    is_hole = row["kind"] == "tier-hole" and victim.first <= row["offset"] < victim.end
    return is_hole or any(name in row["path"] for name in names)


def _lost(case: Case, missing: Offsets, victim: Victim, there: Offsets) -> str:
    own = victim.offsets & there
    if not missing <= own:
        return f"{len(missing - own)} offsets of other segments are lost"
    wanted = {"nothing": set(), "all": own, "either": missing, "chunks": victim.in_chunks(case.chunks(victim)) & there}
    if missing == wanted[case.loses]:
        return ""
    return f"{len(missing)} of {len(own)} offsets are lost, and should {len(wanted[case.loses])}"


#: The ones for a store: what differs there is how objects are fetched.
IN_A_STORE = ("segment cut", "segment flipped", "segment gone", "indexes gone", "manifest cut", "bomb: a chunk")


def check_damage(place: Place, ring: Path, chance: random.Random, said: Said) -> list[str]:
    """Damage one object after the other, each of a segment by chance; what is wrong."""
    there, found = offsets_of(said, place, ring), victims(place, ring)
    print(f"{place.name}: {len(found)} uploads can be damaged", flush=True)
    verify: list[object] = ["verify", place.url, "--keys", ring, "--json"]
    _, usual = run(said, verify, (0,))
    wrong = []
    for case in cases(ring, found):
        if place.storage and case.name not in IN_A_STORE:
            continue
        victim = chance.choice(found)
        objects = {
            suffix: place.files.cat_file(f"{victim.stem}.{suffix}") for suffix in ("log", "indexes", "rsm-manifest")
        }
        with changed(place, victim.stem, case.change(victim, objects)):
            text, memory = run(said, verify, (1,))
            missing = there - offsets_of(said, place, ring)
        damage = _findings(text)
        named = [row for row in damage if _is_of(row, victim)]
        fitting = [row for row in named if re.search(case.says, row["reason"])]
        is_whole = case.loses == "all"  # then the object's name says where
        placed = [row for row in fitting if is_whole or row["position"] is not None or row["offset"] is not None]
        problem = _lost(case, missing, victim, there)
        if not placed:
            problem += f"; not named with its place: {[(r['path'], r['position'], r['reason']) for r in damage[:3]]}"
        if memory > usual + MORE_BYTES:
            problem += f"; it took {memory >> 20} MiB of memory, and {usual >> 20} without damage"
        strangers = [row for row in damage if row not in named]
        if strangers:
            problem += f"; {len(strangers)} findings on others: {strangers[0]['path']}: {strangers[0]['reason']}"
        shown = placed[0]["reason"] if placed else "-"
        print(
            f"  {case.name}: {len(missing)} of {len(victim.offsets & there)} lost, {memory >> 20} MiB: {shown[:150]}",
            flush=True,
        )
        if problem:
            print(f"  WRONG: {problem}", flush=True)
            wrong.append(f"{place.name}: {case.name}: {problem}")
    return wrong


def check_keys(place: Place, ring: Path, scratch: Path, said: Said) -> list[str]:
    """A key that is another one, and one that is missing: all that the others open is read."""
    there, wrong = offsets_of(said, place, ring), []
    by_key: dict[str, Offsets] = {}
    for log in Tier.open(place.url, {**place.storage, KEYS_OPTION: ring}).logs:
        for each in log.segments:
            encryption = each.upload.manifest.encryption  # type: ignore[attr-defined]
            whole = {(log.partition, offset) for offset in range(each.first_offset, each.end_offset)}
            by_key.setdefault(encryption.key_id, set()).update(whole & there)
    print(f"{place.name}: offsets by key: { {key: len(found) for key, found in sorted(by_key.items())} }", flush=True)
    if len(by_key) != 2 or not all(by_key.values()):
        return [f"{place.name}: the keys were not rotated: {list(by_key)}"]
    names = sorted(by_key)
    for number, name in enumerate(names):
        other = names[1 - number]
        for how in ("another", "missing"):
            folder = scratch / f"ring-{how}-{name}"
            folder.mkdir()
            (folder / f"{other}.pem").write_bytes((ring / f"{other}.pem").read_bytes())
            if how == "another":
                Key.make(name, folder)
            found = offsets_of(said, place, folder)
            run(said, ["verify", place.url, "--keys", folder, "--json"], (1, 2))
            # Bytes that no key opens are not looked at; they are no damage.
            reasons = [line for text in said.texts[-2:] for line in text.splitlines() if repr(name) in line]
            print(f"  key {name} {how}: {len(there - found)} lost: {reasons[:1]}", flush=True)
            if found != by_key[other] or not reasons:
                wrong.append(f"{place.name}: key {name} {how}: {len(found)} read, not {len(by_key[other])}; {reasons}")
    return wrong


def secrets(place: Place, ring: Path) -> list[str]:
    """What no output may have: lines of private keys, numbers of them, data keys, wrapped and not, of the store too."""
    keys = KeyRing(ring)
    found = [line for path in ring.glob("*.pem") for line in path.read_text().splitlines() if len(line) > 40]
    for path in place.objects(".rsm-manifest"):
        data = place.files.cat_file(path)
        encryption = parse_manifest(data, path).encryption
        if encryption is not None:
            found.append(json.loads(data)["encryption"]["dataKey"].partition(":")[2][:40])
            plain = keys.unwrap(encryption.key_id, encryption.wrapped)
            found += [plain.hex(), base64.b64encode(plain).decode(), repr(plain)[2:-1]]
    return found + place.secrets
