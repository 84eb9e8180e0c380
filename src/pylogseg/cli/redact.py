"""`pylogseg redact`: delete or blank records of chosen keys, headers or patterns, without a broker."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import IO

import click
from click.core import ParameterSource

from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.cli.options import decompressed_option
from pylogseg.cli.query import parse_bytes, parse_key
from pylogseg.errors import RequestError
from pylogseg.inspect.search.patterns import Pattern, regular_expression
from pylogseg.offline.redacting import redact as redact_logs
from pylogseg.offline.redacting_batches import Blank

_COLUMNS = {"segmentsRewritten": "REWRITTEN", "recordsDeleted": "DELETED"}
_BLANKED = {"segmentsRewritten": "REWRITTEN", "recordsBlanked": "BLANKED"}

_EPILOG = f"""\b
Examples:
  pylogseg redact /data/kafka users --key customer-17 --dry-run
  pylogseg redact /data/kafka --key-file forgotten.txt --everywhere
  pylogseg redact /data/kafka orders --header customer=17 --blank value,headers
  pylogseg redact /data/kafka events --match '[0-9]{{16}}' --in value --blank value --with ''
  pylogseg grep customer-17 /data/kafka           finds nothing afterwards

\b
Not redacted: other replicas (run the command on each broker, or delete the
replica there and let the broker fetch it again), copies that recover and repair
kept, tiered storage, and old bytes in the file system, its snapshots and backups.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@decompressed_option("is not changed, and its partition fails")
@click.option("--key", multiple=True, metavar="KEY", help="An exact key; repeatable.")
@click.option(
    "--key-file",
    type=click.File("rb"),
    metavar="FILE",
    help="Read keys from FILE, one per line; - is stdin. Millions are possible.",
)
@click.option(
    "--key-as",
    type=click.Choice(["text", "hex", "base64"]),
    default="text",
    show_default=True,
    help="Form of the keys in --key and --key-file.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Records with this header, with any value or with VALUE; repeatable.",
)
@click.option("--match", metavar="REGEX", help="Records that match a regular expression on bytes, as for grep -E.")
@click.option(
    "--in",
    "places",
    default="key,value",
    show_default=True,
    metavar="A,B",
    help="Where --match searches: key, value, headers.",
)
@click.option(
    "--blank",
    "parts",
    metavar="A,B",
    help="Blank these fields (value, headers, key), and keep the records. Default: delete the records.",
)
@click.option(
    "--with", "value", metavar="TEXT", help="New content of blanked values instead of null; '' is an empty value."
)
@click.option(
    "--everywhere",
    is_flag=True,
    help="Also redact stray and future replicas (-stray, -future), and remove folders of deleted topics (-delete).",
)
@click.option("--force", is_flag=True, help="Allow an empty key, or a pattern that matches the empty string.")
def redact(
    request: Request,
    key: Sequence[str],
    key_file: IO[bytes] | None,
    key_as: str,
    headers: Sequence[str],
    match: str | None,
    places: str,
    parts: str | None,
    value: str | None,
    everywhere: bool,
    force: bool,
    max_decompressed_bytes: int,
) -> None:
    """Delete or blank records by key, header or pattern, in every segment.

    A record is redacted if any of the options matches. All other records keep their offsets and batches, which are
    recompressed with the same codec; transactions and producers do not change. Segments without a match are not
    rewritten. In a compacted topic a null value is a tombstone: the next compaction removes earlier records of its key.
    """
    if value is not None and "value" not in (parts or ""):
        raise RequestError("--with needs --blank value")
    blank = None
    if parts is not None:
        names = tuple(part.strip() for part in parts.split(","))
        blank = Blank(names, None if value is None else parse_bytes(value, "text"))
    keys = [parse_key(text, key_as) for text in key]
    if key_file is not None:
        keys += _keys_in(key_file, key_as)
    matches = []
    if match is None and click.get_current_context().get_parameter_source("places") is not ParameterSource.DEFAULT:
        raise RequestError("--in needs --match")
    if match is not None:
        pattern = Pattern(regular_expression(match), [place.strip() for place in places.split(",")])
        matches.append(pattern.matches)
    request.run(
        redact_logs,
        columns=_COLUMNS if blank is None else _BLANKED,
        nothing="no record matches",
        passes=2,
        keys=keys,
        headers=[_header(header) for header in headers],
        matches=matches,
        blank=blank,
        everywhere=everywhere,
        force=force,
        max_decompressed_bytes=max_decompressed_bytes,
    )


def _keys_in(file: IO[bytes], key_as: str) -> Iterator[bytes]:
    for number, line in enumerate(file, 1):
        # Windows editors put a BOM before the first line.
        line = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b"\r\n")
        if not line:
            continue
        if key_as == "text":
            yield line
            continue
        try:
            yield parse_bytes(line.decode("ascii"), key_as)
        except (RequestError, UnicodeDecodeError) as error:
            raise RequestError(f"{file.name}: line {number}: {error}") from None


def _header(written: str) -> tuple[bytes, bytes | None]:
    name, equals, value = written.partition("=")
    return parse_bytes(name, "text"), parse_bytes(value, "text") if equals else None
