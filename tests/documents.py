"""The examples in the documents: found, run, compared, and on request brought up to date.

``python tests/documents.py`` runs the commands of all console blocks and writes what they print now below them; look at
the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from conftest import GOLDEN, unpack

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Its commands run one after the other, section by section, on directories of their own.
RECIPES = ROOT / "docs" / "operators.md"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = "$ "


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    """Number of its first line behind the fence, from 1."""


class Command(NamedTuple):
    """A line behind ``$`` and what the page shows below it."""

    command: str
    shown: str


def blocks(page: Path, language: str) -> Iterator[Block]:
    """The blocks of a language in a page."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        if match[1] == language:
            yield Block(language, match[2], text.count("\n", 0, match.start(2)) + 1)


def commands(block: str) -> list[Command]:
    r"""The commands of a console block; a command goes on behind a backslash at the end of its line.

    >>> commands("$ pylogseg ls \\\n    data\na  b\n$ make docs\n")
    [Command(command='pylogseg ls \\\n    data', shown='a  b\n'), Command(command='make docs', shown='')]
    """
    found: list[Command] = []
    lines = iter(block.splitlines(keepends=True))
    for line in lines:
        if line.startswith(_COMMAND):
            command = line.removeprefix(_COMMAND)
            while command.endswith("\\\n"):
                command += next(lines)
            found.append(Command(command.rstrip("\n"), ""))
        else:
            assert found, f"a console block begins with a command, not with {line!r}"
            found[-1] = Command(found[-1].command, found[-1].shown + line)
    return found


def is_ours(command: str) -> bool:
    """Whether a command is run: those of this package are, what installs or builds it is not."""
    return command.split()[0] == "pylogseg"


def workplace(folder: Path) -> Path:
    """A folder that looks like the root of the repository, where examples may write without a trace there."""
    root = folder / "root"
    root.mkdir()
    for path in ROOT.iterdir():
        if not path.name.startswith("."):
            (root / path.name).symlink_to(path)
    tools = folder / "bin"
    tools.mkdir()
    script = tools / "pylogseg"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pylogseg "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return root


def kitchen(folder: Path) -> Path:
    """A folder for one recipe: log directories that a real Kafka wrote, to be changed at will.

    ``kafka`` is the directory of the other examples; the broker of ``lagging`` has not compacted for a while; in
    ``broken`` a bit of a segment has changed and there was no orderly stop.
    """
    root = workplace(folder)
    shutil.copytree(ROOT / "examples" / "data", root / "kafka")
    with tempfile.TemporaryDirectory() as scratch:
        archives = [GOLDEN / "broker-4.3" / f"{name}.tar.xz" for name in ("compact-2-before", "damage")]
        unpack(archives, Path(scratch) / "golden")
        golden = Path(scratch) / "golden" / "broker-4.3"
        shutil.copytree(golden / "compact-2-before" / "data1", root / "lagging")
        shutil.copytree(golden / "damage" / "bit-second" / "in", root / "broken" / "damaged-1")
    shutil.copy(root / "kafka" / "meta.properties", root / "broken")
    return root


def recipes() -> Iterator[tuple[str, list[Command]]]:
    """The sections of the operator's guide that have commands: heading, commands."""
    text = RECIPES.read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        consoles = [match[2] for match in _FENCE.finditer(section) if match[1] == "console"]
        found = [command for block in consoles for command in commands(block)]
        if found:
            yield section.partition("\n")[0], found


def run(command: str, root: Path) -> str:
    """What a command prints, errors among it, in a `workplace`; an exit code other than 0 is shown as a last line."""
    tools = root.parent / "bin"
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100", "TZ": "UTC"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    code = f"(exit code {done.returncode})\n" if done.returncode else ""
    return done.stdout + code


def updated(page: Path, root: Path) -> str:
    """The text of a page with what its commands print now."""
    return refreshed(page.read_text(encoding="utf-8"), root)


def refreshed(text: str, root: Path, *, all_of_them: bool = False) -> str:
    """A text with what its commands print now; those of this package, or all."""

    def refresh(match: re.Match[str]) -> str:
        if match[1] != "console":
            return match[0]
        runs = [(c, all_of_them or is_ours(c.command)) for c in commands(match[2])]
        parts = [(c, run(c.command, root) if is_run else c.shown) for c, is_run in runs]
        return "```console\n" + "".join(f"{_COMMAND}{c.command}\n{shown}" for c, shown in parts) + "```"

    return _FENCE.sub(refresh, text)


def cooked() -> str:
    """The operator's guide with what its commands print now."""
    head, *sections = re.split(r"^(?=## )", RECIPES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section in sections:
        with tempfile.TemporaryDirectory() as folder:
            head += refreshed(section, kitchen(Path(folder)), all_of_them=True)
    return head


def main() -> None:
    """Bring all pages up to date."""
    with tempfile.TemporaryDirectory() as folder:
        root = workplace(Path(folder))
        for page in PAGES:
            text = cooked() if page == RECIPES else updated(page, root)
            if text != page.read_text(encoding="utf-8"):
                page.write_text(text, encoding="utf-8")
                print(f"changed: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
