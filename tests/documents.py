"""The examples in the documents: found, run, compared, and on request brought up to date.

``python tests/documents.py`` runs the commands of all console blocks and writes what they print now below them; look at
the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
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

    def refresh(match: re.Match[str]) -> str:
        if match[1] != "console":
            return match[0]
        parts = [(c, run(c.command, root) if is_ours(c.command) else c.shown) for c in commands(match[2])]
        return "```console\n" + "".join(f"{_COMMAND}{c.command}\n{shown}" for c, shown in parts) + "```"

    return _FENCE.sub(refresh, page.read_text(encoding="utf-8"))


def main() -> None:
    """Bring all pages up to date."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = workplace(Path(folder))
        for page in PAGES:
            text = updated(page, root)
            if text != page.read_text(encoding="utf-8"):
                page.write_text(text, encoding="utf-8")
                print(f"changed: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
