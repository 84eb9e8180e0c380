"""Tests of cli/outputs.py. Where commands write: never into what they read, and in place of what is there only if told
to.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.shell import expect, pylogseg, run


@pytest.fixture(autouse=True)
def disk(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log directory ``q``, and a partition's folder ``txn-b-0`` outside of one."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(examples, tmp_path / "q")
    shutil.copytree(examples / "txn-b-0", tmp_path / "txn-b-0")


def tree() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "text",
    [
        "export q txn-b -O q",
        "export q txn-b -O q/lake",
        "export q txn-b -O q/../q/lake --overwrite",
        "export q txn-b -O q/codec-none-1/x.parquet",
        "export q/txn-b-0 -O q/lake",
        "export q/txn-b-0/00000000000000000000.log -O q/x.csv",
        "export txn-b-0 -O txn-b-0/x.csv",
        "export q txn-b -O link/lake",
        "sql q from;records -O q/x.csv",
        "groups q --export q/recovery-point-offset-checkpoint --overwrite",
        "groups q --export q/saved.csv",
        "groups q --map-to txn-b-0 --export txn-b-0/saved.csv",
    ],
)
def test_nothing_is_written_into_what_is_read(text: str) -> None:
    Path("link").symlink_to("q")
    before = tree()
    done = expect(run(text), 2)
    reasons = ("which is read: choose a place outside of it", "no broker starts with other things in it")
    assert any(reason in done.err for reason in reasons)
    assert tree() == before


def test_a_place_beside_what_is_read_is_free() -> None:
    assert run("export q txn-b -O lake").code == 0
    assert run("export txn-b-0 -O x.csv").code == 0
    assert run("export txn-b-0/00000000000000000000.log -O q.csv").code == 0
    assert run("groups q --export saved.csv").code == 0


@pytest.mark.parametrize(("command", "option"), [("sql q count.sql", "-O"), ("groups q", "--export")])
def test_what_is_there_is_replaced_only_if_told_to(command: str, option: str) -> None:
    Path("count.sql").write_text("select 1 as one")
    words = command.replace("count.sql", "-f count.sql")
    Path("x.csv").write_text("theirs")
    done = run(f"{words} {option} x.csv")
    assert (done.code, done.err) == (2, "pylogseg: x.csv exists already: replace it with --overwrite\n")
    assert Path("x.csv").read_text() == "theirs"
    assert run(f"{words} {option} x.csv --overwrite").code == 0
    assert Path("x.csv").read_text() != "theirs"
    assert run(f"{words} {option} new.csv").code == 0


def test_a_name_that_is_no_place_is_refused() -> None:
    before = tree()
    for command in (("export", "q", "-O", ""), ("groups", "q", "--export", ""), ("sql", "q", "select 1", "-O", "")):
        done = expect(pylogseg(*command), 2, "expected")
    for name in ("exp.xlsx", "out/lake.parq", "a.CSV"):
        done = run(f"export q txn-b -O {name}")
        assert done.code == 2
        assert f"{name}: expected a folder, or a file that ends in .parquet, .arrow, .csv or .jsonl" in done.err
    assert tree() == before
    for name in ("lake.d/", "lake-2026.01.31", "lake.d"):  # the last one is there by now
        assert run(f"export q txn-b -O {name} --overwrite").text.startswith(f"{name}: ")


def test_links_below_the_target_are_not_followed() -> None:
    """A link in the place of a topic's or a partition's folder leads out of the target."""
    Path("elsewhere").mkdir()
    for link in (Path("lake/topic=txn-b"), Path("lake2/topic=txn-b/partition=0")):
        link.parent.mkdir(parents=True)
        link.symlink_to(Path("elsewhere").absolute())
        for more in ("", " --overwrite"):
            done = run(f"export q txn-b -O {link.parts[0]}{more}")
            assert (done.code, f"{link} is a link to" in done.err) == (2, True)
    assert not list(Path("elsewhere").iterdir())
    # The target itself may be one.
    Path("lake3").symlink_to(Path("elsewhere").absolute())
    assert run("export q txn-b -O lake3").code == 0
    assert list(Path("elsewhere").rglob("*.parquet"))


def test_an_export_does_not_go_to_stdout() -> None:
    done = run("export q txn-b -O -")
    assert (done.code, "pylogseg cat" in done.err, Path("-").exists()) == (2, True, False)
