"""Tests of the whole package. Examples hold: those of the documents and of the docstrings are run, and print what they
say.
"""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import changed
import documents
import pytest
from helpers import page_tables

import pylogseg
from pylogseg.disk import columns
from pylogseg.format.layout import STRUCTURES
from pylogseg.values.internal.cluster_state import STATE_TABLES

ROOT = documents.ROOT
PAGES = documents.PAGES
#: Tables of fields, some of which need no meaning.
LAYOUTS = {structure.name for structure in STRUCTURES}
#: Pages whose examples need more than Python.
SPARK_PAGES = {"spark", "spark-jobs"}


def of_spark(each: Any, text: str) -> Any:
    """A parameter of a test, which needs Spark if a text names a module for it."""
    return pytest.param(each, marks=[pytest.mark.spark] if "pylogseg.spark" in text else [])


PYTHON_PAGES = [
    pytest.param(page, marks=[pytest.mark.spark] if page.stem in SPARK_PAGES else [])
    for page in PAGES
    if list(documents.blocks(page, "python"))
]
CONSOLE = [
    pytest.param(command, id=f"{page.stem}:{block.line}:{command.command[:50]}")
    for page in PAGES
    if page != documents.RECIPES
    for block in documents.blocks(page, "console")
    for command in documents.commands(block.text)
    if documents.is_ours(command.command)
]


def may_have_examples(name: str) -> bool:
    """Whether a module has prompts in its text; one that is compiled has no text here."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return not spec.origin.endswith(".py") or ">>> " in Path(spec.origin).read_text(encoding="utf-8")


FOUND = (info.name for info in pkgutil.walk_packages(pylogseg.__path__, "pylogseg."))
MODULES = sorted(name for name in FOUND if not name.endswith("__main__") and may_have_examples(name))  # no programs


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work where the examples think they are: in the root of the repository."""
    folder = documents.workplace(tmp_path)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: page.stem)
def test_python(page: Path, request: pytest.FixtureRequest) -> None:
    """The blocks of a page run one after the other, as a reader types them; those with prompts show what they print."""
    if page.stem in SPARK_PAGES:
        request.getfixturevalue("spark")  # what `getOrCreate` gives then; its JVM stays in the folder where it began
    request.getfixturevalue("root")
    names: dict[str, object] = {"__name__": f"docs.{page.stem}"}
    for block in documents.blocks(page, "python"):
        if block.text.lstrip().startswith(">>>"):
            run_prompts(block.text, names, page, block.line)
        else:
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)


def run_prompts(text: str, names: dict[str, object], page: Path, line: int) -> None:
    test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), line - 1)
    test.globs = names
    said: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(test, out=said.append, clear_globs=False)
    assert not results.failed, "".join(said)


@pytest.mark.newest
@pytest.mark.parametrize("command", CONSOLE)
@pytest.mark.skipif(sys.platform == "win32", reason="commands are those of a POSIX shell")
def test_console(command: documents.Command, root: Path) -> None:
    """`python tests/documents.py` writes anew what is shown."""
    assert documents.run(command.command, root) == command.shown


@pytest.mark.newest
@pytest.mark.parametrize(("title", "commands"), [pytest.param(*each, id=each[0]) for each in documents.recipes()])
@pytest.mark.skipif(sys.platform == "win32", reason="commands are those of a POSIX shell")
def test_recipe(title: str, commands: list[documents.Command], tmp_path: Path) -> None:
    """All commands of a section of the operator's guide, one after the other on the same directories."""
    with documents.kitchen(tmp_path) as root:
        for command in commands:
            assert documents.run(command.command, root) == command.shown, command.command


@pytest.mark.parametrize("name", [of_spark(name, name) for name in MODULES])
def test_docstrings(name: str, root: Path) -> None:
    assert not doctest.testmod(importlib.import_module(name)).failed


def test_tables_from_the_code() -> None:
    """`python tests/documents.py` makes them; each is on one page, and has a meaning in each row."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert [documents.with_tables(text) for text in texts] == texts
    for name, make in page_tables.TABLES.items():
        assert sum(f"<!-- table of {name} -->" in text for text in texts) == 1, name
        assert name in LAYOUTS or " | |\n" not in make(), name
    for name in (*columns.TABLES, "stats", *documents.LINES):
        assert sum(f"<!-- columns of {name} -->" in text for text in texts) == 1


def test_tables_of_a_clusters_state() -> None:
    """The page has the columns of each table."""
    text = (ROOT / "docs" / "cluster-state.md").read_text(encoding="utf-8")
    listed = re.findall(r"<!-- columns of state (\w+) -->", text)
    assert {*listed, "group_lags"} == {*STATE_TABLES}


@pytest.mark.parametrize("module", [changed, documents], ids=lambda module: module.__name__)
def test_examples_of_a_program(module: ModuleType) -> None:
    assert not doctest.testmod(module).failed


def test_links_between_pages() -> None:
    """Relative links of pages lead to files, and anchors to headings."""
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve() if target else page
            assert path.exists(), f"{page.name}: {target}"
            if anchor and path.suffix == ".md":
                assert anchor in anchors(path), f"{page.name}: {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Names of the headings of a page as the site makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_pages_are_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:\n")[2].partition("\ntheme:")[0]
    assert sorted(re.findall(r"- (\S+\.md)$", menu, re.MULTILINE)) == sorted(
        page.name for page in (ROOT / "docs").glob("*.md")
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_lines_are_readable(page: Path) -> None:
    """Text is wrapped at 120 columns, so that a change of it can be reviewed; tables and examples are not."""
    in_example = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        in_example ^= line.lstrip().startswith("```")
        is_free = in_example or line.startswith(("|", "    ", "<!--"))
        assert is_free or len(line) <= 120 or " " not in line.strip(), f"{page.name}:{number}: {len(line)} columns"


#: Pages of the menu's "Start" and "How to", and the two that lead to them.
MENU = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("- Start:")[2].partition("- Reference:")[0]
GUIDES = [page for page in PAGES if page.name in {"README.md", "index.md", *re.findall(r"[\w-]+\.md", MENU)}]
_LIST_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page's paragraphs and lists; a span of code counts as one word, and a link as its text."""
    paragraph: list[str] = []
    for line in [*re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines(), ""]:
        is_text = line.strip() and not line.startswith(("|", "#", "<!--", "    ", "!["))
        if paragraph and (not is_text or _LIST_ITEM.match(line)):
            whole = re.sub(r"`[^`]+`", "code", re.sub(r"\]\([^)]*\)", "]", " ".join(paragraph)))
            yield from re.split(r"(?<=[.!?])[)\]*\"]* ", whole)
            paragraph = []
        if is_text:
            paragraph.append(_LIST_ITEM.sub("", line).strip())


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_sentences_are_short(page: Path) -> None:
    """Those of the guides have at most 30 words; tables are not looked at."""
    assert [each for each in sentences(page.read_text(encoding="utf-8")) if len(each.split()) > 30] == []


def test_a_long_sentence_is_seen() -> None:
    text = f"# A title\n\nShort one. {'word ' * 28}`a b c`\n[and more words](x.md) here. Next.\n\n- {'item ' * 31}\n"
    assert [len(each.split()) for each in sentences(text)] == [2, 33, 1, 31]


#: Folders in which pages look for a file that they name, and programs of others.
FILE_FOLDERS = [ROOT, ROOT / "src" / "pylogseg", ROOT / "src", ROOT / "tests", ROOT / "docs"]
NOT_OURS = {"kafka-dump-log.sh", "kafka-delete-records.sh", "kafka-reassign-partitions.sh", "job.py"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_files_exist(page: Path) -> None:
    """Files in backticks, and those that a command runs, exist; tests and classes are defined in them."""
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"`([\w./-]+\.(?:py|pyi|pyx|pxd|h|sh|md|toml|yml))`", text))
    names |= set(re.findall(r"\b(?:python|pytest) ([\w./-]+\.py)\b", text))
    for name in sorted(names - NOT_OURS):
        assert any((folder / name).exists() for folder in FILE_FOLDERS), f"{page.name}: no file {name}"
    for defined, name in re.findall(r"`([A-Z]\w+)` (?:in |\()`([\w/]+\.py)`", text):
        source = (ROOT / "src" / "pylogseg" / name).read_text(encoding="utf-8")
        assert re.search(rf"^class {defined}\b", source, re.MULTILINE), f"{page.name}: no class {defined} in {name}"
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in set(re.findall(r"`(test_\w+)(?:\.\.\.)?`", text)):
        assert re.search(rf"def {name}", tests), f"{page.name}: no test {name}"


@pytest.mark.parametrize(
    "page", [of_spark(page, page.read_text(encoding="utf-8")) for page in PAGES], ids=lambda page: page.stem
)
def test_named_objects_exist(page: Path) -> None:
    """Dotted names of the package, in text and in the directives of the reference, lead to a module or an object."""
    text = page.read_text(encoding="utf-8")
    for name in sorted(set(re.findall(r"`(pylogseg(?:\.\w+)+)[`(]", text))):
        resolve(name)
    for name in re.findall(r"^::: (\S+)", text, re.MULTILINE):
        found = resolve(name)
        assert getattr(found, "__module__", name) in name, f"{page.name}: {name} is defined elsewhere"
    for name, members in re.findall(
        r"^::: (\S+)\n    options:\n(?:      .*\n)*?      members: \[(.*)\]", text, re.MULTILINE
    ):
        for member in filter(None, members.split(", ")):
            owner = resolve(name)
            if inspect.isclass(owner) and re.search(rf"self\.{member}\b.*=", inspect.getsource(owner)):
                continue  # an attribute
            part = getattr(owner, member, None)
            assert part is not None, f"{page.name}: {name} has no {member}"
            assert getattr(part, "__module__", name) in name, f"{page.name}: {member} is not defined in {name}"


def resolve(name: str) -> object:
    """Return the module or object of a dotted name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("pylogseg"):
                pytest.skip(f"{name} needs {error.name}")
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"no module {name}")


def test_architecture_names_where_to_look() -> None:
    """A reader of one page finds the files of six things."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| (.*`.+\.(?:py|pyx|pxd)`.*) \|$", page, re.MULTILINE))
    for subject in ("torn tail", "varint", "delete horizon", "--dry-run", "Spark's schema", "new codec"):
        assert any(subject in row for row in rows), subject


def sections_named(text: str) -> list[tuple[str, str]]:
    """Sections that a text of code names behind their page, as in `docs/serve.md`, "Clients" and "Logins"."""
    text = re.sub(r"\s*\n\s*(?:#:?|//|\*)?\s*", " ", text)
    found = re.findall(r"""docs/([\w-]+)\.md`*((?:,? (?:and )?"[\w][^"]*")+)""", text)
    return [(page, name) for page, quoted in found for name in re.findall('"([^"]+)"', quoted)]


def test_pages_and_sections_that_code_names_exist() -> None:
    sources = [
        path
        for folder in ("src", "tests", "asv_benchmarks", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".pyi", ".pyx", ".pxd", ".h", ".sh", ".java"} and ".asv" not in path.parts
    ]
    checked = 0
    for path in sources:
        text = path.read_text(encoding="utf-8")
        for name in set(re.findall(r"\bdocs/([\w-]+)\.md", text)):
            assert (ROOT / "docs" / f"{name}.md").exists(), f"{path}: no page {name}"
        for page, section in sections_named(text) if path != Path(__file__) else ():
            checked += 1
            titles = re.findall(r"^#+ (.*)$", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
            assert section in [title.replace("`", "") for title in titles], f"{path}: {page}.md has no {section!r}"
    assert checked > 10
