"""Tests of _version.py. What a release is made with: the recipe, the workflows and the project's
metadata say the same.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pylogseg

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
RECIPE = ROOT / "packaging" / "conda-forge"
#: Names that conda-forge has for what the package index calls otherwise, and what it does not have.
THERE = {"isal": "python-isal"}
NOT_THERE = {"deflate"}


def bounds(text: str) -> dict[str, str]:
    """Names and bounds of requirements, one a line or an element."""
    found = re.findall(r"([A-Za-z][\w-]*) ?((?:[<>=]+[\d.]+,?)+)", text)
    return {name.lower(): ",".join(sorted(bound.split(","))) for name, bound in found}


def section(text: str, head: str) -> str:
    """The list below a head of the recipe."""
    return text.partition(f"\n  {head}:\n")[2].partition("\n  run:\n" if head == "host" else "\ntests:")[0]


def test_the_recipe_needs_what_the_package_needs() -> None:
    recipe = (RECIPE / "recipe.yaml").read_text(encoding="utf-8")
    needs = [each for each in importlib.metadata.requires("pylogseg") or () if "extra ==" not in each]
    ours = bounds("\n".join(each.partition(";")[0] for each in needs))
    assert {THERE.get(name, name): bound for name, bound in ours.items() if name not in NOT_THERE} == bounds(
        section(recipe, "run")
    )
    assert bounds(section(recipe, "host")) == bounds(PROJECT.partition("requires = ")[2].partition("\n")[0])


def test_the_recipe_is_filled_from_an_sdist(tmp_path: Path) -> None:
    sdist = tmp_path / f"pylogseg-{pylogseg.__version__}.tar.gz"
    sdist.write_bytes(b"abc")
    command = [sys.executable, str(RECIPE / "fill.py"), str(sdist)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f'version: "{pylogseg.__version__}"' in said
    assert "0.0.0" not in said
    assert "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" in said  # SHA-256 of "abc"
    local = subprocess.run([*command, "--local"], check=True, capture_output=True, text=True).stdout
    assert sdist.as_uri() in local


def test_pythons_are_the_same_everywhere() -> None:
    """Classifiers, wheels, and the matrix of the quick set."""
    classifiers = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT))
    wheels = set(re.findall(r'"cp3(\d+t?)-\*"', PROJECT))
    assert {f"3.{each}" for each in wheels if not each.endswith("t")} == classifiers
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    (quick,) = re.findall(r"\n  quick:.*?python: \[(.*?)\]", tests, flags=re.DOTALL)
    assert {f'"3.{each}"' for each in wheels} == set(quick.split(", "))


def test_a_client_is_lacking_only_where_it_has_no_wheels() -> None:
    """Tests that use it are skipped without it, which nobody would see."""
    assert "confluent-kafka>=2.16; python_version < '3.15'" in PROJECT
    assert sys.version_info >= (3, 15) or importlib.util.find_spec("confluent_kafka")


def test_what_runs_without_the_lock_imports_what_is_there() -> None:
    """`make free` installs few packages: what its folders import at their top is among them, or our own."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (folders,) = re.findall(r"addprefix tests/,([a-z ]+)\)", makefile)
    there = set(sys.stdlib_module_names) | {"pylogseg", "pytest"}
    there |= {path.stem for folder in ("tests", "tests/kafka") for path in (ROOT / folder).iterdir()}
    there |= {"numpy", "pyarrow", "cramjam", "isal", "hypothesis", "crcmod", "zstandard", "lz4", "kafka", "fsspec"}
    there |= {"cryptography", "Crypto"}
    for path in (each for folder in folders.split() for each in (ROOT / "tests" / folder).glob("*.py")):
        there.add(path.stem)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            named = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                named = [node.module or ""]
            assert {name.partition(".")[0] for name in named} <= there, path


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_there_is(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
    for script in re.findall(r"(?<![\w/])((?:\.github|\.ci|tests|packaging)/[\w./-]+)", text):
        assert (ROOT / script).exists(), script
    for action in re.findall(r"uses: (\S+)", text):
        assert action.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action


def test_the_changelog_reads_alone() -> None:
    """It is a page of the site and the notes of a release too, where no link to a file beside it leads anywhere."""
    links = re.findall(r"\]\(([^)]*)\)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert all(link.startswith("https://") for link in links), links
