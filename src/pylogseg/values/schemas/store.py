"""`pylogseg.Schemas`: the schemas that values are decoded with, from a disk, from files, from a registry."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path as FilePath

from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.env.file_errors import storage_error
from pylogseg.env.filesystem import LocalFiles, Path
from pylogseg.errors import RequestError
from pylogseg.values.schemas.registry import Registry
from pylogseg.values.schemas.schema import DEFAULT_CONTEXT, Schema, guid_of, in_context
from pylogseg.values.schemas.topic import TOPIC, SchemaTopic

_TYPES = {".avsc": "AVRO", ".avro": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
_URL = re.compile(r"https?://", re.IGNORECASE)
#: A URL without its scheme, or with another: as a path, an error would show the password.
_LOGIN = re.compile(r".*:.*@", re.DOTALL)
#: A registry may name ever more.
_MOST_REFERENCES = 1000


class Schemas:
    """Schemas by id, GUID, subject and version; `Schemas.open` finds them.

    Parameters
    ----------
    found : iterable of Schema
    registry : Registry, optional
        Asked for what is not among them.
    gone : iterable of Schema
        Permanently deleted, but still in the log.

    Attributes
    ----------
    notes : list of str
        What was ignored, and schemas that were found in an unexpected place.
    has_damage : bool
        True if a part of the topic could not be read.
    """

    def __init__(
        self, found: Iterable[Schema] = (), *, registry: Registry | None = None, gone: Iterable[Schema] = ()
    ) -> None:
        self.notes: list[str] = []
        self.has_damage = False
        self.gone = list(gone)
        self._all: list[Schema] = []
        self._registry = registry
        self._by_id: dict[tuple[str, int], Schema] = {}
        self._by_guid: dict[str, Schema] = {}
        self._by_version: dict[tuple[str, int | None], Schema] = {}
        self._elsewhere: dict[int, list[Schema]] = {}
        self._use_gone = False
        for schema in found:
            self.add(schema)

    def __repr__(self) -> str:
        """Return a short text."""
        return f"<pylogseg.Schemas: {len(self._all)}>"

    def __iter__(self) -> Iterator[Schema]:
        """Yield the schemas that are there, the softly deleted ones too, in the order they were found."""
        return iter(self._all)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all)

    @classmethod
    def open(
        cls, source: Path | Disk | Sequence[Path], *, cache: Path | None = None, use_gone: bool = False
    ) -> Schemas:
        """Find schemas.

        Parameters
        ----------
        source : path, URL, list of paths, or Disk
            Log directories with the topic `_schemas`; or a schema's file (``.avsc``, ``.proto``, ``.json``), or a
            folder of them: if a file's name is a number or a GUID (``13.avsc``), it is the id, else the subject; or
            the URL of a schema registry.
        cache : path, optional
            Where a registry's answers are kept; by default ``~/.cache/pylogseg/schemas``.
        use_gone : bool
            Use permanently deleted schemas too, if they are still in the log of `_schemas`.

        Returns
        -------
        Schemas

        Raises
        ------
        RequestError
            If there is no such topic, file or URL.
        StorageError
            If a disk fails. A registry is asked when a schema is needed.
        """
        if isinstance(source, str) and (_URL.match(source) or (_LOGIN.match(source) and not os.path.exists(source))):
            return cls(registry=Registry(source, cache))
        schemas = cls._of_paths(source)
        schemas._use_gone = use_gone
        return schemas

    @classmethod
    def of_files(cls, paths: Iterable[Path]) -> Schemas:
        """Take schemas from files.

        Parameters
        ----------
        paths : iterable of path
            Each ends in ``.avsc``, ``.proto`` or ``.json``.

        Returns
        -------
        Schemas
        """
        return cls(map(schema_of_file, paths))

    @classmethod
    def _of_paths(cls, source: Path | Disk | Sequence[Path]) -> Schemas:
        """The topic if it is there, otherwise files."""
        paths = [] if isinstance(source, Disk) else _paths(source)
        if paths and all(path.suffix.lower() in _TYPES for path in paths):
            return cls.of_files(paths)
        folders = [path for path in paths if path.is_dir()]
        names = [(path, entry.name) for path in folders for entry in LocalFiles().list_names(str(path))]
        files = [path / name for path, name in names if _is_schema(path / name)]
        try:
            disk = source if isinstance(source, Disk) else open_dir(source)
        except RequestError:  # no Kafka files
            if not files:
                raise
            return cls.of_files(files)
        topic = SchemaTopic.of_disk(disk)
        if topic is None:
            schemas = cls.of_files(files)
            if not files:
                schemas.notes.append(f"the topic {TOPIC} is not among the given directories")
            return schemas
        schemas = cls(topic, gone=topic.gone)
        schemas.notes += topic.notes
        schemas.has_damage = bool(topic.damage)
        return schemas

    def add(self, schema: Schema) -> None:
        """Add a schema."""
        self._all.append(schema)
        if schema.id is not None:
            self._by_id.setdefault((schema.context, schema.id), schema)
            self._elsewhere.setdefault(schema.id, []).append(schema)
        if schema.guid:
            self._by_guid.setdefault(schema.guid, schema)
        if schema.subject is not None:
            self._by_version[schema.subject, schema.version] = schema

    def by_id(self, number: int, context: str = DEFAULT_CONTEXT) -> Schema | None:
        """Return the schema with an id.

        Parameters
        ----------
        number : int
            The id.
        context : str
            Another one is used if there is only one other schema with the id, and noted.

        Returns
        -------
        Schema or None
        """
        schema = self._by_id.get((context, number))
        if schema is None and self._registry is not None:
            schema = self._registry.by_id(number, context)
            if schema is not None:
                self.add(schema)
        if schema is None:
            others = self._elsewhere.get(number, ())
            if len({(other.text, other.references) for other in others}) == 1:
                schema = next(iter(others))
                self._note(f"the id {number} is not of context {context}: {schema.title} of {schema.context} is used")
        return schema or self._find_deleted(lambda schema: schema.id == number and schema.context == context)

    def by_guid(self, guid: str) -> Schema | None:
        """Return the schema with a GUID.

        Parameters
        ----------
        guid : str
            As a UUID is written.

        Returns
        -------
        Schema or None
        """
        schema = self._by_guid.get(guid)
        if schema is None and self._registry is not None:
            schema = self._registry.by_guid(guid)
            if schema is not None:
                self.add(schema)
        return schema or self._find_deleted(lambda schema: schema.guid == guid)

    def version(self, subject: str, version: int | None = None) -> Schema | None:
        """Return a version of a subject.

        Parameters
        ----------
        subject : str
            With its context.
        version : int, optional
            By default the latest that is not deleted.

        Returns
        -------
        Schema or None
        """
        if version is not None and version >= 0:
            schema = self._by_version.get((subject, version)) or self._by_version.get((subject, None))
        else:
            those = [s for s in self._all if s.subject == subject]
            live = [s for s in those if s.deleted == "no"] or those
            schema = max(live, key=lambda s: -1 if s.version is None else s.version, default=None)
        if schema is None and self._registry is not None:
            schema = self._registry.version(subject, version)
            if schema is not None:
                self.add(schema)
        return schema or self._find_deleted(lambda schema: schema.subject == subject and schema.version == version)

    def missing(self, number: int, context: str = DEFAULT_CONTEXT) -> str:
        """Return why there is no schema with an id.

        Parameters
        ----------
        number : int
            The id.
        context : str
            Where it should be.

        Returns
        -------
        str
        """
        gone = any(schema.id == number and schema.context == context for schema in self.gone)
        hint = " (deleted for good, but still in the log: Schemas.open(..., use_gone=True) uses it)" if gone else ""
        return f"no schema {number}{hint}"

    def references(self, schema: Schema) -> dict[str, Schema]:
        """Return the schemas to which a text refers, directly or not, by the names in the texts.

        Parameters
        ----------
        schema : Schema
            One with references, or without.

        Returns
        -------
        dict of str to Schema

        Raises
        ------
        RequestError
            If one of them is not there.
        """
        schemas: dict[str, Schema] = {}
        waiting = [schema]
        while waiting:
            one = waiting.pop()
            for name, subject, version in one.references:
                if name in schemas:
                    continue
                other = self.version(in_context(subject, one.context), version) or self.version(subject, version)
                if other is None:
                    raise RequestError(f"{one.title} refers to {name}, {subject} version {version}, which is not there")
                if len(schemas) >= _MOST_REFERENCES:
                    raise RequestError(f"{schema.title} refers to more than {_MOST_REFERENCES} schemas")
                schemas[name] = other
                waiting.append(other)
        return schemas

    def _find_deleted(self, fits: Callable[[Schema], bool]) -> Schema | None:
        if not self._use_gone:
            return None
        schema = next((schema for schema in reversed(self.gone) if fits(schema)), None)
        if schema is not None:
            self._note(f"{schema.title} was deleted for good, and is taken from the log of {TOPIC}")
        return schema

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _paths(source: Path | Sequence[Path]) -> list[FilePath]:
    return [FilePath(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]


def _is_schema(path: FilePath) -> bool:
    return path.suffix.lower() in _TYPES and path.is_file()


def schema_of_file(path: Path) -> Schema:
    """Read the schema of a file; the end of its name tells the kind."""
    file = FilePath(path)
    kind = _TYPES.get(file.suffix.lower())
    if kind is None:
        raise RequestError(f"{file}: the name of a schema's file must end in {', '.join(_TYPES)}")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise storage_error(file, "read", error) from None
    except UnicodeDecodeError as error:
        raise RequestError(f"{file}: not UTF-8 at byte {error.start}") from None
    stem, number, guid = file.stem, None, guid_of(text)
    if stem.isdecimal():
        number = int(stem)
    else:
        with contextlib.suppress(ValueError):
            guid = str(uuid.UUID(stem))
    return Schema(text, kind, number, file.name if kind == "PROTOBUF" else stem, None, guid=guid)
