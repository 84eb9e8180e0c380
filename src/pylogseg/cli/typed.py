"""Options of commands that decode keys and values by their schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pylogseg.cli import common
from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.errors import RequestError
from pylogseg.format.text import DECODED
from pylogseg.format.words import count_text
from pylogseg.reading.log_reader import LogReader, first_chunks
from pylogseg.reading.logs import topics_of

if TYPE_CHECKING:
    from pylogseg.values.decoding import Decoding, TypedBatches
    from pylogseg.values.typed_text import PayloadText, TypedText

F = TypeVar("F", bound=Callable[..., Any])
SCHEMA = DECODED


def typed_options(function: F) -> F:
    """Add ``--schema``, ``--registry`` and ``--message``: parameters of these names."""
    return common.add_all(
        function,
        [
            click.option(
                "--schema",
                metavar="SCHEMA",
                help="Schema to read values by: a FILE.avsc or .proto, a subject, subject:version or an id. "
                "Default: the newest of the topic's subject.",
            ),
            click.option(
                "--registry",
                metavar="WHERE",
                help="Where schemas are: a log directory with _schemas, a folder of .avsc and .proto files, "
                "a registry's URL. Default: the given paths.",
            ),
            click.option("--message", metavar="NAME", help="The Protobuf message. Default: the first record's."),
        ],
    )


def undecoded_option(function: F) -> F:
    """Add ``--on-undecoded``: a parameter ``on_undecoded``."""
    return click.option(
        "--on-undecoded",
        type=click.Choice(["raw", "raise", "skip"]),
        help="Treatment of a value that cannot be decoded: raw (the default) keeps its bytes in a column.",
    )(function)


def decoding_of(which: Sequence[str], options: dict[str, Any]) -> Decoding:
    """Return how the given columns are decoded."""
    from pylogseg.values.decoding import Decoding

    settings = dict(options)
    number = settings.get("schema")
    if number is not None and number.isdecimal():
        settings["schema"] = int(number)
    if settings.get("schema") is not None and len(which) > 1:
        settings["schema"] = {"value": settings["schema"]}
    return Decoding.of(tuple(which), **settings)


def own_options(function: F) -> F:
    """Add ``--internal`` and ``--show-secrets``: parameters of these names."""
    return common.add_all(
        function,
        [
            click.option(
                "--internal",
                is_flag=True,
                help="Typed keys and values of the topics that Kafka, Connect and a schema registry write for "
                "themselves (__consumer_offsets, ...).",
            ),
            click.option("--show-secrets", is_flag=True, help="With --internal: passwords, and the keys of users."),
        ],
    )


def check_secrets(internal: bool, show_secrets: bool) -> None:
    """Refuse ``--show-secrets`` where it would be ignored."""
    if show_secrets and not internal:
        raise click.UsageError("--show-secrets needs --internal")


def own_decoding(names: Sequence[str], on_undecoded: str | None, show_secrets: bool) -> Decoding:
    """Return the decoding of topics that Kafka writes for itself, for the columns that can be decoded."""
    from pylogseg.values.decoding import Decoding

    which = tuple(name for name in ("key", "value") if name in names)
    return Decoding.of(which, on_undecoded=on_undecoded, show_secrets=show_secrets, only_own=True)


def typed_of(
    decoding: Decoding, arguments: Sequence[str], readers: Sequence[LogReader], names: Sequence[str]
) -> TypedBatches:
    """Return the decoder of columns of the selected records."""
    from pylogseg.values.decoding import typed_batches

    topics = topics_of(reader.log for reader in readers)
    return typed_batches(decoding, whole_disk(arguments), topics, names, lambda: first_chunks(readers))


def choose_payload_text(
    styles: Sequence[str],
    given: dict[str, Any],
    own: tuple[bool, bool],
    arguments: Sequence[str],
    readers: Sequence[LogReader],
) -> PayloadText | None:
    """Return the decoder of keys and values for text, if any; `own` are ``--internal`` and ``--show-secrets``."""
    internal, show_secrets = own
    check_secrets(internal, show_secrets)
    if internal and any(style != "text" for style in styles):
        raise click.UsageError("--internal cannot be combined with --key-as and --value-as")
    wanted = wants_schema(*styles)
    check_unused(wanted, {name: value for name, value in given.items() if name != "on_undecoded"}, "--value-as")
    if internal:
        from pylogseg.values.internal.record_text import MessageText

        return MessageText(show_secrets=show_secrets)
    return typed_text(decoding_of(wanted, given), arguments, readers) if wanted else None


def typed_text(decoding: Decoding, arguments: Sequence[str], readers: Sequence[LogReader]) -> TypedText:
    """Return the decoder of records for text, each topic by its own schemas.

    A topic without a schema, one of several, stays as it is, with a note; its first record decides.
    """
    from pylogseg.values.decoding import schemas_disk
    from pylogseg.values.schemas.store import Schemas
    from pylogseg.values.typed_text import Decoders, TypedText

    by_topic: dict[str, list[LogReader]] = {}
    for reader in readers:
        by_topic.setdefault(reader.log.segments[0].topic if reader.log.segments else "", []).append(reader)
    if len(by_topic) < 2:
        decoders = typed_of(decoding, arguments, readers, decoding.columns).decoders
        return TypedText(lambda _: decoders, decoding.on_undecoded)
    source = decoding.registry
    schemas = source if isinstance(source, Schemas) else Schemas.open(source or schemas_disk(whole_disk(arguments)))
    decoding = replace(decoding, registry=schemas)

    def open_topic(topic: str) -> Decoders:
        decoders: dict[str, Any] = {}
        for which in decoding.columns:
            # With both columns, a schema is that of values.
            one = replace(decoding, columns=(which,), schema=decoding.wanted(which))
            try:
                decoders.update(typed_of(one, arguments, by_topic.get(topic, ()), (which,)).decoders)
            except RequestError as error:
                if one.schema is not None:
                    raise
                common.complain(f"note: the {which}s of {topic} are printed as text: {common.remedy(error)}")
        return decoders

    return TypedText(open_topic, decoding.on_undecoded)


def whole_disk(arguments: Sequence[str]) -> Disk:
    """The whole disk at the paths, not only the partitions that names select."""
    return open_dir(common.split_arguments(arguments)[0])


def wants_schema(key: str, value: str) -> list[str]:
    """Return the columns that are to be decoded by their schemas."""
    return [which for which, word in (("key", key), ("value", value)) if word == SCHEMA]


def check_unused(wanted: Sequence[str], given: dict[str, Any], option: str) -> None:
    """Refuse options that mean nothing where nothing is decoded."""
    unused = [name for name, value in given.items() if value is not None]
    if unused and not wanted:
        raise RequestError(f"--{unused[0].replace('_', '-')} needs {option} schema")


def report_undecoded(count: int, first: str = "") -> bool:
    """Print how many payloads did not decode; whether there were any."""
    if count:
        common.complain(f"{count_text(count, 'payload')} could not be decoded" + (f"; {first}" if first else ""))
    return count > 0
