r"""Java properties text, and the file ``meta.properties`` that tells whose a log directory is.

The text rules are Java's: comments, ``key=value``, ``key:value`` or ``key value``, lines continued by a backslash,
escapes and ``\uXXXX``. Rules: `docs/format.md`, "meta.properties".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.buffers import byte_view
from pylogseg.format.files.javamap import hash_of_text, map_order
from pylogseg.format.uuids import parse_uuid

_BLANKS = " \t\f"
_NATURAL_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {char: "\\" + char for char in "\\=:#!"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")


def parse_properties(data: Any, path: str = "<properties>") -> dict[str, str]:
    r"""Read Java properties text: UTF-8, or Latin-1 where it is not that (Java's readers and writers differ in this).

    The later value counts for a key that comes twice. Raises CorruptionError if ``\u`` is not followed by four hex
    digits.
    """
    raw = bytes(byte_view(data))
    encoding = "utf-8"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        encoding = "latin-1"
        text = raw.decode(encoding)
    properties = {}
    for at, line in _logical_lines(text):
        key = _KEY.match(line)
        separator = _SEPARATOR.match(line, key.end() if key else 0)
        if key is None or separator is None:
            raise AssertionError("both expressions match anywhere")
        try:
            properties[_unescape(key[0])] = _unescape(line[separator.end() :])
        except ValueError as error:
            raise CorruptionError(path, len(text[:at].encode(encoding)), str(error)) from None
    return properties


def encode_properties(properties: Mapping[str, str], date: str) -> bytes:
    """Make Java properties text, as Kafka writes it, in the order of Java's map.

    `date` is the second comment line, such as ``Sat Nov 21 06:35:13 UTC 2026``; RequestError if it has a line end in
    it.
    """
    if re.search(r"[\r\n]", date):
        raise RequestError(f"date {date!r} has more than one line")
    lines = ["#", f"#{date}"]
    for key in map_order(properties, hash_of_text):
        value = properties[key]
        blanks = len(value) - len(value.lstrip(" "))
        # Every blank of a key must be escaped, of a value only the leading one; Java escapes just that.
        lead = "\\ " + value[1:blanks] if blanks else ""
        lines.append(f"{_escape(key).replace(' ', chr(92) + ' ')}={lead}{_escape(value[blanks:])}")
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


class MetaProperties(NamedTuple):
    """The cluster and the node of a log directory."""

    version: int  #: 0 (written with ZooKeeper) or 1 (KRaft).
    cluster_id: str | None = None
    node_id: int | None = None  #: `broker.id` in version 0, `node.id` in version 1.
    directory_id: str | None = None  #: UUID of the directory itself, as 22 characters.


def parse_meta_properties(data: Any, path: str = "<meta.properties>") -> MetaProperties:
    """Read ``meta.properties``.

    Raises CorruptionError if the version is not 0 or 1, a number or UUID is not one, or version 1 lacks a cluster or
    node id.
    """
    properties = parse_properties(data, path)
    version = _integer(properties.get("version", "0"), "version", path)
    if version not in (0, 1):
        raise CorruptionError(path, 0, f"unknown version {version} of meta.properties")
    name = "node.id" if version else "broker.id"
    if version:
        for needed in ("cluster.id", name):
            if needed not in properties:
                raise CorruptionError(path, 0, f"{needed} is missing")
    number = _integer(properties[name], name, path) if name in properties else None
    directory_id = properties.get("directory.id")
    if directory_id is not None:
        _check_directory_id(directory_id, path)
    return MetaProperties(version, properties.get("cluster.id"), number, directory_id)


def encode_meta_properties(meta: MetaProperties, date: str) -> bytes:
    """Make the text of ``meta.properties``; fields that are None are left out.

    Raises RequestError if the version is not 0 or 1, or version 1 lacks a cluster or node id.
    """
    if meta.version not in (0, 1):
        raise RequestError(f"meta.properties has no version {meta.version}")
    if meta.version and (meta.cluster_id is None or meta.node_id is None):
        raise RequestError("version 1 of meta.properties needs a cluster id and a node id")
    fields = {
        "version": meta.version,
        "cluster.id": meta.cluster_id,
        "node.id" if meta.version else "broker.id": meta.node_id,
        "directory.id": meta.directory_id,
    }
    return encode_properties({name: str(value) for name, value in fields.items() if value is not None}, date)


def _integer(text: str, name: str, path: str) -> int:
    # Kafka strips white space around numbers here.
    text = text.strip()
    if not _INTEGER.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise CorruptionError(path, 0, f"{name} is {text[:200]!r}, not a number of 32 bits")
    return int(text)


def _check_directory_id(text: str, path: str) -> None:
    try:
        parse_uuid(text)
    except RequestError as error:
        raise CorruptionError(path, 0, f"directory.id: {error}") from None


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return lines with their positions: without comments and blank lines, joined where a backslash continues them."""
    lines: list[tuple[int, str]] = []
    parts: list[str] = []
    first = at = 0
    while at < len(text):
        match = _NATURAL_LINE.match(text, at)
        if match is None:
            raise AssertionError("the expression matches anywhere")
        line = match[1].lstrip(_BLANKS)
        start, at = at, match.end()
        # As in Java, a lone backslash continues nothing: a comment or a blank line may follow it.
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = start
        # An odd number of backslashes at the end: the last one escapes the line end.
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        line = line[:-1] if goes_on else line
        if line:
            parts.append(line)
        # At the end of the text Java counts even a lone backslash as a line, with an empty key.
        if at == len(text) if goes_on else parts:
            lines.append((first, "".join(parts)))
            parts = []
    return lines


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ValueError(f"\\u without four hex digits in {text[:200]!r}")
        return _CONTROLS.get(escaped, escaped)

    plain = _ESCAPE.sub(replace, text)
    # Two escapes may be the halves of one character beyond the first 65,536.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str) -> str:
    return "".join(_WRITTEN.get(char, char) for char in text)
