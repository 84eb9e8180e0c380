"""The tier that a URL names, `aiven+s3://`, `localtier+file://` and the like: its uploads, and the logs they form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pylogseg.disk.lineage.parts import LeftKind
from pylogseg.disk.notes import Note
from pylogseg.disk.tier.keys import KEYS_OPTION, KeyRing
from pylogseg.disk.tier.layouts import Found, find_aiven, find_files
from pylogseg.disk.tier.slices import TieredLog, whole_log
from pylogseg.disk.tier.uploads import BrokenUpload, Objects, Shared, Stored, Upload
from pylogseg.errors import RequestError
from pylogseg.walker.gaps import offsets_text

#: The name of a topic's folder in a tier.
_FOLDER = re.compile(".+-[A-Za-z0-9_-]{22}")
#: Ranges of offsets that one note names.
_NAMED = 5
#: Clocks of brokers may differ so much.
_SKEW_MS = 60_000
#: By the scheme of a URL, what finds the uploads in a tier, and what it looks for.
_LAYOUTS: dict[str, tuple[Callable[[Shared, Iterable[Stored]], Found], str]] = {
    "aiven": (find_aiven, "TOPIC-TOPICID/PARTITION/OFFSET-SEGMENTID.rsm-manifest"),
    "localtier": (find_files, "TOPIC-PARTITION-TOPICID/OFFSET-SEGMENTID.log"),
}


class Tier:
    """The uploads of a tier, by partition and by topic id; `logs` are of the latest id of each topic.

    `refused` and `mixed` have the reason, and the remedy, where two clusters share the place. At a point of an archive,
    that says which logs there are.
    """

    def __init__(self, url: str, objects: Objects, found: Found, logs: list[TieredLog] | None = None) -> None:
        self.url, self.found, self._objects = url, found, objects
        self.by_partition: dict[tuple[str, int, str], list[Upload]] = {}
        names = {upload.segment.topic_id: upload.segment.topic for upload in found.uploads
                 if not isinstance(upload, BrokenUpload)}  # fmt: skip
        for upload in found.uploads:
            segment = upload.segment
            topic = names.get(segment.topic_id, segment.topic)
            self.by_partition.setdefault((topic, segment.partition, segment.topic_id), []).append(upload)
        self.topic_ids: dict[tuple[str, int], list[str]] = {}
        for topic, partition, topic_id in self.by_partition:
            self.topic_ids.setdefault((topic, partition), []).append(topic_id)
        #: Numbers of uploads of older topics of the same name, by name and id.
        self.older: dict[tuple[str, str], int] = {}
        self.logs: list[TieredLog] = []
        self.mixed: dict[tuple[str, int, str], str] = {}
        self.refused: dict[tuple[str, int], str] = {}
        if logs is None:
            self._find_logs()
        else:
            self.logs = logs

    def _find_logs(self) -> None:
        """Find the uploads that belong to the logs, and the parts that they form."""
        latest: dict[str, tuple[int, int, str]] = {}
        for (topic, _, topic_id), uploads in self.by_partition.items():
            # By the time of the upload, where manifests tell it: a bucket that was copied has other times of objects.
            when = max((upload.segment.event_timestamp_ms, upload.modified_ms) for upload in uploads)
            latest[topic] = max(latest.get(topic, (-2, -2, "")), (*when, topic_id))
        self.mixed = {name: why for name, uploads in self.by_partition.items() if (why := _explain_mix(name, uploads))}
        several = _several(self.by_partition, {topic: newest[2] for topic, newest in latest.items()})
        self.refused = {name[:2]: why for name in self.by_partition if (why := several.get(name[0]))}
        self.refused |= {name[:2]: why for name, why in self.mixed.items() if latest[name[0]][2] == name[2]}
        for name, uploads in sorted(self.by_partition.items()):
            if name[:2] in self.refused:
                continue
            if latest[name[0]][2] == name[2]:
                self.logs.append(whole_log(name, uploads))
            else:
                of = name[0], name[2]
                self.older[of] = self.older.get(of, 0) + len(uploads)

    @classmethod
    def open(
        cls,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        only: str | None = None,
        *,
        memory_map: bool = False,
    ) -> Tier:
        """List a tier and read all its manifests, or the manifests of one partition (perhaps none).

        With `memory_map`, objects that are files of this machine are mapped.
        """
        options = dict(storage_options or {})
        keys = KeyRing(options.pop(KEYS_OPTION, None))
        layout, _, place = url.partition("+")
        find, form = _LAYOUTS[layout]
        objects = Objects(place, options, memory_map=memory_map)
        folders = [None] if only is None else _folders_of(objects, layout, only)
        uploads = find(Shared(objects, keys), [stored for folder in folders for stored in objects.find(folder)])
        if None in folders and not uploads.uploads and not uploads.orphans:
            links = "".join(f"; {link} is a link, which is not followed" for link in objects.links[:1])
            raise RequestError(f"{url}: no uploaded segment here (objects named {form}){links}")
        return cls(url, objects, uploads)

    @property
    def links(self) -> list[str]:
        """Folders in it that are links, and were skipped."""
        return self._objects.links

    def name_of(self, stored: Stored) -> str:
        """Return the name of an object in messages."""
        return self._objects.name(stored.path)

    def notes(self) -> Iterable[Note]:
        """Yield notes for readers about uploads that are left out."""
        for (topic, topic_id), count in self.older.items():
            what = f"{count} uploads of an older topic, {topic}-{topic_id}"
            yield Note(self.url, f"{what}, are left out: name its folder to read them", topic)
        for link in self.links:
            fact = "a link, which is not followed in a tier: name the folder that it leads to"
            yield Note(link, fact, is_of_all=True)
        for name, why in sorted(self.refused.items()):
            yield Note(self.url, why, *name)
        for log in self.logs:
            branches = [left for _, left in log.left if left.kind is LeftKind.BRANCH]
            if branches:
                fact = f"{len(branches)} uploads have records of other leaders, which are not in the log: "
                yield Note(self.url, fact + branches[0].reason, log.topic, log.partition)


def hole_notes(url: str, logs: Iterable[TieredLog]) -> Iterable[Note]:
    """Yield notes for readers about offsets that no upload has: reading continues behind them."""
    for log in logs:
        if log.holes:
            what = ", ".join(offsets_text(first, end) for first, end in log.holes[:_NAMED])
            what += f" and {len(log.holes) - _NAMED} more ranges" if len(log.holes) > _NAMED else ""
            yield Note(url, f"{what} of the log are in no upload", log.topic, log.partition)


def _place_of(upload: Upload) -> tuple[str, str]:
    """Return the prefix of an upload's object names, without and with the topic's folder."""
    segment, parts = upload.segment, upload.name.split("/")
    depth = -3 if parts[-2].isdigit() else -2
    ending = f"{segment.topic}-{segment.topic_id}" if depth == -3 else f"{segment.topic}-{segment.partition}-"
    above, folder = "/".join(parts[:depth]), parts[depth]
    return f"{above}/{folder[: folder.rfind(ending)]}", f"{above}/{folder}"


def _explain_mix(name: tuple[str, int, str], uploads: Sequence[Upload]) -> str | None:
    """Return why uploads of one topic id come from two clusters: copies of a cluster went on apart.

    A cluster may have changed its prefix, but then does not upload the same offsets below both.
    """
    by_place: dict[str, list[Upload]] = {}
    for upload in uploads:
        if not isinstance(upload, BrokenUpload):
            by_place.setdefault(_place_of(upload)[0], []).append(upload)
    if len(by_place) < 2:
        return None
    ranges = sorted((u.segment.start_offset, u.segment.end_offset, place) for place, of in by_place.items() for u in of)
    reached: dict[str, int] = {}
    for start, end, place in ranges:
        if any(start <= reached[other] for other in reached if other != place):
            places = " and ".join(sorted(by_place))
            return (
                f"{name[0]}-{name[1]} (topic id {name[2]}) has uploads of the same offsets below {places}: those of two"
                " clusters, or a copy of the bucket; name one of these places as the URL of the tier"
            )
        reached[place] = max(reached.get(place, -1), end)
    return None


def _several(
    by_partition: Mapping[tuple[str, int, str], Sequence[Upload]], latest: Mapping[str, str]
) -> dict[str, str]:
    """Return, by name, why several topics of one name come from several clusters.

    The uploads of a topic that was made anew are later than those of the one before it, and below the same prefix.
    """
    by_topic: dict[str, dict[str, list[Upload]]] = {}
    for (topic, _, topic_id), uploads in by_partition.items():
        whole = [upload for upload in uploads if not isinstance(upload, BrokenUpload)]
        if whole:
            by_topic.setdefault(topic, {}).setdefault(topic_id, []).extend(whole)
    refusals: dict[str, str] = {}
    for topic, ids in by_topic.items():
        if len(ids) < 2:
            continue
        places = {_place_of(upload)[0] for uploads in ids.values() for upload in uploads}
        folders = " and ".join(sorted({_place_of(upload)[1] for uploads in ids.values() for upload in uploads})[:4])
        begins = min(map(_uploaded_ms, ids.get(latest[topic], [])), default=None)
        others = [upload for topic_id, uploads in ids.items() if topic_id != latest[topic] for upload in uploads]
        ended = max(map(_uploaded_ms, others), default=None)
        if len(places) > 1:
            why = f"topics of the name {topic} lie below {len(places)} prefixes: they are of several clusters"
        elif begins is not None and ended is not None and begins + _SKEW_MS < ended:
            why = f"{len(ids)} topics of the name {topic} were uploaded at the same time: they are of several clusters"
        else:
            continue
        refusals[topic] = f"{why}; name one of their folders, or the prefix above it, as the URL: {folders}"
    return refusals


def _uploaded_ms(upload: Upload) -> int:
    said = upload.segment.event_timestamp_ms
    return upload.modified_ms if said < 0 else said


def _folders_of(objects: Objects, layout: str, name: str) -> list[str | None]:
    """Return the folders with the uploads of a partition; None for all, if they may be elsewhere.

    If there were several topics of this name, all of their folders: only these together tell which is the latest.
    """
    topic, _, partition = name.rpartition("-")
    form = re.compile(re.escape(topic) + ("-([0-9]{1,10})" if layout == "localtier" else "()") + "-([A-Za-z0-9_-]{22})")
    files = objects.files
    folders = [entry.name for entry in files.list_folder(objects.root) if entry.is_dir]
    named = [name for name in folders if not objects.is_link(files.join(objects.root, name))]
    matches = [(files.join(objects.root, name), match) for name in named if (match := form.fullmatch(name))]
    if len({match[2] for _, match in matches}) > 1:
        return [folder for folder, _ in matches]
    if layout == "localtier":
        there = [folder for folder, match in matches if match[1] == partition]
    else:
        there = [folder for folder, _ in matches if any(entry.name == partition for entry in files.list_folder(folder))]
        there = [files.join(folder, partition) for folder in there]
    is_top = bool(named) and all(_FOLDER.fullmatch(name) for name in named)
    return [*there] if there or is_top else [None]
