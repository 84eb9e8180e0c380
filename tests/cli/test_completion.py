"""Tests of cli/completion.py. Completion: what is answered to bash, zsh and fish, and what bash makes of it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import documents
import pytest
from helpers import forked
from helpers.shell import ROOT, environment

PAGE = ROOT / "docs" / "completion.md"


def answered(line: str, shell: str = "bash") -> list[str]:
    """What is answered for the last word of a line; of bash and fish `type,word`, a line each."""
    words = line.split(" ")
    variables = {"COMP_WORDS": line if shell != "fish" else " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        variables["COMP_CWORD"] = words[-1]
    done = subprocess.run(
        forked.command(),
        env={**environment(), **variables, "_PYLOGSEG_COMPLETE": f"{shell}_complete"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pylogseg sta", ["plain,stats"]),
        ("pylogseg grep --colo", ["plain,--color"]),
        ("pylogseg stats --sort ", ["plain,name", "plain,size", "plain,records"]),
        ("pylogseg cat examples/da", ["file,examples/da"]),
        ("pylogseg cat ", ["file,"]),
        ("pylogseg cat examples/data codec-", [f"plain,codec-{c}" for c in ("gzip", "lz4", "none", "snappy", "zstd")]),
        ("pylogseg cat examples/data txn-a", ["plain,txn-a", "plain,txn-a-0", "plain,txn-a-1"]),
        ("pylogseg cat examples codec-n", ["plain,codec-none"]),
        ("pylogseg cat examples/data nothing", ["file,nothing"]),
        ("pylogseg grep word examples/data --topic txn-b", ["plain,txn-b", "plain,txn-b-0"]),
        ("pylogseg compact examples/data cmp-s", ["plain,cmp-short"]),
        ("pylogseg copy examples/data backup mix", ["plain,mixed"]),
        ("pylogseg diff examples/da", ["file,examples/da"]),
        ("pylogseg dump exam", ["file,exam"]),
    ],
)
def test_what_is_offered(line: str, expected: list[str]) -> None:
    assert answered(line) == expected


def test_zsh_and_fish_get_the_same_words() -> None:
    line = "pylogseg cat examples/data txn-a"
    assert [word for word in answered(line, "zsh") if word.startswith("txn")] == ["txn-a", "txn-a-0", "txn-a-1"]
    assert [re.split("[,\t]", each)[1] for each in answered(line, "fish")] == ["txn-a", "txn-a-0", "txn-a-1"]


def test_folders_that_are_no_live_partitions(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1.0123456789abcdef0123456789abcdef-delete", "lost+found"):
        (tmp_path / name).mkdir()
    (tmp_path / "payments-0").write_text("a file")
    assert answered(f"pylogseg cat {shlex.quote(str(tmp_path))} ") == ["plain,orders"]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """A home where `pylogseg` is a command, for shells."""
    script = tmp_path / "bin" / "pylogseg"
    script.parent.mkdir()
    forked.script(script)
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    return {**environment(), "HOME": str(tmp_path), "PATH": path}


needs_bash = pytest.mark.skipif(
    shutil.which("bash") is None or sys.platform != "linux", reason="needs bash 4.4 or later"
)


def of_page(section: str) -> list[list[str]]:
    """The commands of the console blocks of a section."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    found = [match[2] for match in re.finditer(r"^```(console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    return [[each.command for each in documents.commands(block)] for block in found]


@needs_bash
def test_bash_completes_as_the_page_says(home: dict[str, str]) -> None:
    to_file, at_start = of_page("bash")
    subprocess.run(["bash", "-c", "\n".join(to_file)], env=home, cwd=ROOT, check=True)
    file = "source ~/.local/share/bash-completion/completions/pylogseg"
    for setup in (file, "\n".join(at_start)):
        words = "COMP_WORDS=(pylogseg cat examples/data codec-z); COMP_CWORD=3"
        line = f'{words}; _pylogseg_completion pylogseg; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(
            ["bash", "-c", f"{setup}\ncomplete -p pylogseg\n{line}"],
            env=home,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines() == ["complete -o nosort -F _pylogseg_completion pylogseg", "codec-zstd"]
        assert done.stderr == ""


@needs_bash
@pytest.mark.parametrize(
    ("shell", "file"), [("zsh", ".zfunc/_pylogseg"), ("fish", ".config/fish/completions/pylogseg.fish")]
)
def test_files_of_other_shells(shell: str, file: str, home: dict[str, str]) -> None:
    """The commands of the page write the function; a shell that is here reads it without a complaint."""
    (Path(home["HOME"]) / ".config/fish/completions").mkdir(parents=True)
    (commands,) = of_page(shell)
    subprocess.run(["bash", "-c", "\n".join(commands)], env=home, cwd=ROOT, check=True)
    text = (Path(home["HOME"]) / file).read_text()
    assert f"_PYLOGSEG_COMPLETE={shell}_complete" in text
    assert text.startswith("#compdef pylogseg") == (shell == "zsh")
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(Path(home["HOME"]) / file)], check=True)


@needs_bash
def test_the_answer_that_the_page_shows(tmp_path: Path) -> None:
    root = documents.workplace(tmp_path)
    (block,) = [
        match[1]
        for match in re.finditer(
            r"^```console\n(\$ COMP_WORDS.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
    ]
    for each in documents.commands(block):
        assert documents.run(each.command, root) == each.shown
