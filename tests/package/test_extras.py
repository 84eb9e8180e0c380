"""Tests of the whole package. Errors say which packages an extra has: those of the package's own list."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylogseg.errors import EXTRAS, install_command, install_text
from pylogseg.lakehouse.formats import FORMATS

ROOT = Path(__file__).resolve().parents[2]


PACKAGES = {**EXTRAS, **{name: of.packages for name, of in FORMATS.items() if of.packages}}


@pytest.mark.parametrize("extra", PACKAGES)
def test_the_packages_of_an_extra(extra: str) -> None:
    listed = ", ".join(f'"{package}"' for package in PACKAGES[extra])
    assert f"\n{extra} = [{listed}]\n" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    command = install_text(extra) if extra in EXTRAS else install_command(PACKAGES[extra])
    assert command == "pip install " + " ".join(f"'{package}'" for package in PACKAGES[extra])


def test_no_text_needs_an_index_that_has_this_package() -> None:
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md")]:
        assert "'pylogseg[" not in path.read_text(encoding="utf-8"), path
