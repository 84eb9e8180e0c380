"""The tests of what changed: `python tests/changed.py [--base main] [FOLDER...] [-- ARGUMENTS OF PYTEST]`.

Prints the test folders and files that belong to what differs from the base branch, and runs them without a Kafka, Spark
and a browser, and without long sweeps unless one of these changed. A band of `src/pylogseg` has its tests in the folder
of the same name; a test alone that changed is run alone. With FOLDER, these are run; for a module of `src/pylogseg`,
the tests whose first line names it. Exit code 0 if they pass, or there are none.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
#: Parts of `src/pylogseg` whose tests are elsewhere.
_ELSEWHERE = {"walker": "reading", "_native": "format", "testing": "env", "config.py": "log", "errors.py": "log"}
_UNTRIED = "not kafka and not spark and not browser"


def changed(base: str) -> list[str]:
    """Return the paths that differ from where this branch left the base, and new ones."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    (left,) = git("merge-base", base, "HEAD")
    return git("diff", "--name-only", left) + git("ls-files", "--others", "--exclude-standard")


def tests_of(paths: Iterable[str]) -> list[str]:
    """Return test folders and files for paths of the repository, none that lies in another.

    >>> tests_of(["src/pylogseg/log/log.py", "tests/log/test_bounds.py", "tests/format/test_crc.py", "README.md"])
    ['tests/format/test_crc.py', 'tests/log']
    """
    found = set()
    for path in paths:
        parts = Path(path).parts
        if parts[:2] == ("src", "pylogseg") and len(parts) > 2:
            folder = _ELSEWHERE.get(parts[2], parts[2])
            found.add(f"tests/{folder if (TESTS / folder).is_dir() else 'package'}")
        elif parts[0] == "tests" and len(parts) > 2 and parts[-1].startswith("test_") and (ROOT / path).is_file():
            found.add(path)
    return sorted(each for each in found if str(Path(each).parent) not in found)


def named_modules(file: Path) -> list[str]:
    """Return the modules of `src/pylogseg` that the first line of a file of tests names.

    >>> named_modules(TESTS / "format" / "test_names.py")
    ['format/names.py']
    """
    text = " ".join((ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split())
    first = re.match(r"Tests of ((?:[\w/]+\.pyx?(?:, | and )?)+)\.", text)
    return re.findall(r"[\w/]+\.pyx?", first[1]) if first else []


def named_tests(path: str) -> list[str]:
    """Return what was asked for: a folder or file of tests, or the tests that name a module.

    >>> "tests/reading/test_windows.py" in named_tests("src/pylogseg/walker/gaps.py")
    True
    >>> named_tests("tests/log"), named_tests("src/pylogseg/log/__init__.py")
    (['tests/log'], ['tests/log'])
    """
    module = path.removeprefix("src/pylogseg/")
    if module == path or not path.endswith((".py", ".pyx")):
        return [path]
    files = (file for file in sorted(TESTS.glob("*/test_*.py")) if module in named_modules(file))
    return [file.relative_to(ROOT).as_posix() for file in files] or tests_of([path])


def has_long(path: str) -> bool:
    """Check whether a file of tests has a long sweep."""
    file = ROOT / path
    is_test = Path(path).parts[0] == "tests" and file.name.startswith("test_")
    return is_test and file.is_file() and "mark.long" in file.read_text(encoding="utf-8")


def main(words: list[str]) -> int:
    """Run what was asked for, or what changed."""
    at = words.index("--") if "--" in words else len(words)
    given, further = words[:at], words[at + 1 :]
    base = "main"
    if given[:1] == ["--base"]:
        base, given = given[1], given[2:]
    paths = changed(base)
    given = [file for path in given for file in named_tests(path)]
    chosen = given or tests_of(paths)
    if importlib.util.find_spec("pyspark") is None:
        chosen = [each for each in chosen if Path(each).parts[:2] != ("tests", "spark")]
    print("tests of what changed:", " ".join(chosen) or "none", flush=True)
    if not chosen:
        return 0
    marks = _UNTRIED if any(map(has_long, [*paths, *given])) else f"{_UNTRIED} and not long"
    code = pytest.main(["-m", marks, "-n", "auto", "--dist", "worksteal", *further, *chosen])
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
