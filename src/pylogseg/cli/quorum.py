"""`pylogseg quorum`: the metadata logs of a cluster's nodes compared, and a quorum that starts again."""

from __future__ import annotations

import os
from typing import Any

import click

from pylogseg.cli import completion
from pylogseg.cli.common import json_option, progress
from pylogseg.cli.offline import default_keep
from pylogseg.cli.outcomes import end_with_outcome, print_parts
from pylogseg.cli.tiers import Local
from pylogseg.errors import RequestError
from pylogseg.inspect.quorum.look import look_at_quorum
from pylogseg.offline.rescuing.command import rescue_quorum

_EPILOG = r"""\b
Examples:
  pylogseg quorum /mnt/c1 /mnt/b11 /mnt/b12      which copy is the longest, and
                                                 what the other ones lack
  pylogseg quorum rescue /mnt/c1 /mnt/b11 /mnt/b12 --in-place /mnt/c1
      --voter 1@c1.example.com:9093              a dry run: the survivor alone
  pylogseg quorum rescue /mnt/b11 /mnt/b12
      --into /new/c1 --voter 1@c1.example.com:9093
      --into /new/c2 --voter 2@c2.example.com:9093
      --into /new/c3 --voter 3@c3.example.com:9093 --write
                                                 three new controllers at once
  pylogseg quorum rescue /mnt/c1 /mnt/c2 /mnt/c3 --into /new/c1 --into /new/c2
      --into /new/c3 --rename old1:9093=new1:9093 ...

\b
Each DIR is a log directory, or a folder of several, of a controller or a broker:
each broker has the whole metadata log too. Give all that there are: the longest
copy has all that was committed, and brokers stop that have more than their
controllers. A disk that cannot be read is unknown, never shorter.
`quorum` writes nothing, and brokers may run. Names as in /mnt/c1 may be copies of
__cluster_metadata-0 with the meta.properties beside it.

\b
Exit codes: 0 success; 1 the metadata registers a broker whose disk was not given,
or --without left one out; 2 a disk cannot be read, wrong usage, or a refusal: then
nothing was written; 130 interrupted.
"""
_LOOK = "look"
#: A disk; one of several may be gone.
_SOURCE = Local(is_source=True)


class QuorumCommands(click.Group):
    """A group of commands; before a disk, the word `look` may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the word before a disk, or an option of it."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [_LOOK, *args]
        return super().parse_args(ctx, args)


@click.group("quorum", cls=QuorumCommands, epilog=_EPILOG.replace(r"\b", "\b"))
def quorum_commands() -> None:
    """Compare the metadata logs of controllers and brokers: DIR...; or rescue a quorum that lost its majority."""


@quorum_commands.command(_LOOK)
@click.argument("disks", nargs=-1, required=True, metavar="DIR...", type=_SOURCE, shell_complete=completion.files)
@json_option
def look_command(disks: tuple[str, ...], as_json: bool) -> None:
    """Show the copies, the longest one, the names that a shorter one lacks, and the verdict."""
    with progress(_size(disks), "reading") as advance:
        seen = look_at_quorum(disks, on_bytes=advance)
    if as_json:
        print_parts(seen, as_json)
    end_with_outcome(seen, as_json)


@quorum_commands.command("rescue")
@click.argument("disks", nargs=-1, required=True, metavar="FROM...", type=_SOURCE, shell_complete=completion.files)
@click.option("--voter", "voters", multiple=True, metavar="ID@HOST:PORT", help="A new voter: one, three or five.")
@click.option(
    "--rename", multiple=True, metavar="OLD=NEW", help="The old voters, at other addresses; each is HOST:PORT."
)
@click.option(
    "--into", multiple=True, type=Local(), metavar="FOLDER",
    help="A new log directory, empty or a new path; one for each voter, in their order.",
)  # fmt: skip
@click.option("--in-place", type=Local(), metavar="DIR", help="One of FROM, a survivor that becomes the only voter.")
@click.option(
    "--keep", type=Local(), metavar="FOLDER",
    help="With --in-place: a new folder for its metadata log as it is now; default: pylogseg/kept/<time> below "
    "$XDG_STATE_HOME.",
)  # fmt: skip
@click.option(
    "--without", multiple=True, type=Local(), metavar="DIR", help="One of FROM that cannot be read: go on without it."
)
@click.option("--listener", metavar="NAME", help="The controllers' listener; default: from the metadata.")
@click.option("--force", is_flag=True, help="Also if the quorum starts without a rescue.")
@click.option("--write", is_flag=True, help="Write. Without this option it is a dry run.")
@json_option
def rescue(
    disks: tuple[str, ...],
    voters: tuple[str, ...],
    rename: tuple[str, ...],
    in_place: str | None,
    keep: str | None,
    write: bool,
    as_json: bool,
    **more: Any,
) -> None:
    """Make controllers of the longest copy: print each file and byte range, and the steps that start the quorum.

    A dry run, unless --write is given. Two old controllers that come back later become observers.
    """
    if keep is not None and in_place is None:
        raise RequestError("--keep goes with --in-place: new folders replace nothing")
    kept = os.path.abspath(keep or default_keep()) if in_place is not None else None
    pairs = dict(_pair(text) for text in rename) or None
    with progress(_size(disks) * (1 + write * (len(more["into"]) or 1)), "rescuing" if write else "reading") as advance:
        done = rescue_quorum(
            disks, voters=voters, rename=pairs, in_place=in_place, keep=kept, write=write, on_bytes=advance, **more
        )
    end_with_outcome(done, as_json)


def _pair(text: str) -> tuple[str, str]:
    old, sign, new = text.partition("=")
    if not sign:
        raise RequestError(f"--rename {text}: expected OLD=NEW, such as c1.old:9093=c1.new:9093")
    return old, new


def _size(disks: tuple[str, ...]) -> int:
    """Bytes of the metadata logs, for the bar of progress."""
    total = 0
    for above, _, names in (row for path in disks for row in os.walk(path)):
        if os.path.basename(above).startswith("__cluster_metadata-"):
            paths = (os.path.join(above, name) for name in names if name.endswith((".log", ".checkpoint")))
            total += sum(os.path.getsize(path) for path in paths if os.path.exists(path))
    return total
