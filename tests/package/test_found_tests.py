"""Tests of the whole package: the first line of each test file names modules, and each module is named."""

from __future__ import annotations

import ast
from collections import Counter

from changed import ROOT, TESTS, named_modules

PACKAGE = ROOT / "src" / "pylogseg"
FILES = sorted(TESTS.glob("*/test_*.py"))
MODULES = {
    path.relative_to(PACKAGE).as_posix()
    for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx"))
    if path.name != "__init__.py"
}


def test_every_module_is_named_by_one_to_three_files() -> None:
    counts = Counter(module for file in FILES for module in named_modules(file))
    assert {module: counts[module] for module in MODULES if not 1 <= counts[module] <= 3} == {}
    assert counts.keys() - MODULES == set()


def test_every_file_names_modules() -> None:
    for file in FILES:
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        is_whole = file.parent.name == "package" and text.startswith("Tests of the whole package")
        assert is_whole or named_modules(file), f"{file}: the first line does not name modules"
