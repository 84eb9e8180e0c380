"""Counts of wordings and names that a stranger has to read twice, over the package and its pages."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from helpers.public_names import public

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pylogseg"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_INVERTED = re.compile(r"(What|Whether|Whose|Who|Of|So is|So are|Nor)\b")
#: Relative words that stand in the place of a noun, or need one.
_RELATIVE = re.compile(
    r"\b(what|whatever|which|whose|whoever|others|else|those (?:that|who|of)|that of|who\b(?! has))\b", re.I
)
#: Words that stand in the place of a noun in a description's first paragraph, the only one that most readers see.
_FREE = re.compile(r"(?<!`)\b(what|whatever|whoever|those|that of)\b", re.I)
_NOBODY = re.compile(r"\b(?:is|are|was|were|be|been) (?:said|told|known|named so|not known)\b", re.I)
_GENERATED = re.compile(r"<!-- (?:columns of|table of|printed by) .*?<!-- end -->", re.DOTALL)
_CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_VAGUE = ("found", "each", "known", "made", "given", "told")
#: Words in -ed that are no participles, or are nouns and verbs of the field.
_NO_PARTICIPLES = {"embed", "feed", "need", "proceed", "read", "seed", "shed", "speed", "succeed", "exceed"}
_PARTICIPLES = {
    "begun", "built", "bound", "cut", "done", "drawn", "found", "given", "gone", "held", "kept", "known", "left",
    "lost", "made", "meant", "read_only", "said", "seen", "sent", "shown", "sought", "spread", "split_off", "taken",
    "told", "thrown", "understood", "worn", "written",
}  # fmt: skip


#: Functions that each codec or each table format has.
_ROLES = {"compressor", "decompress", "decompress_block", "library", "newest_ledger", "open_it", "open_sink"}


class Place(NamedTuple):
    """Where a wording or a name stands."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@cache
def _trees() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def _docstrings() -> Iterator[Place]:
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    yield Place(path, getattr(node, "lineno", 1), text)


def _helps() -> Iterator[Place]:
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.keyword) or node.arg not in ("help", "short_help"):
                continue
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield Place(path, node.value.lineno, node.value.value)


def _page_sentences() -> Iterator[Place]:
    for page in PAGES:
        is_code = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            if is_code or line.startswith(("#", "    ", "<!--")):
                continue
            for sentence in _split(line.strip().lstrip("-*|>0123456789. ")):
                yield Place(page.name, number, sentence)


def _split(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.:;!?])\s+(?=[A-Z`*\"(])|\s\|\s|\n\s*\n", text) if part]


def _sentences() -> Iterator[Place]:
    for place in (*_docstrings(), *_helps()):
        for sentence in _split(place.text):
            yield place._replace(text=" ".join(sentence.split()))
    yield from _page_sentences()


def inverted() -> list[Place]:
    """Return sentences that begin with a relative or with `Of`, so that the noun comes late."""
    return [place for place in _sentences() if _INVERTED.match(place.text)]


def doubly_relative() -> list[Place]:
    """Return sentences with two words that stand in the place of a noun."""
    return [place for place in _sentences() if len(_RELATIVE.findall(place.text)) > 1]


def free_relatives() -> list[Place]:
    """Return first paragraphs of docstrings with a word in the place of a noun."""
    paragraphs = (place._replace(text=" ".join(place.text.split("\n\n")[0].split())) for place in _docstrings())
    return [place for place in paragraphs if _FREE.search(place.text)]


def agentless() -> list[Place]:
    """Return sentences in which something is said, told or known, and nobody says or knows it."""
    return [place for place in _sentences() if _NOBODY.search(place.text)]


def in_pages() -> dict[str, int]:
    """Return the number of words in each page, without code blocks and tables that a program makes."""
    counts = {}
    for page in PAGES:
        text = _GENERATED.sub("", page.read_text(encoding="utf-8"))
        text = _CODE_BLOCK.sub("", text)
        counts[page.name] = sum(1 for token in text.split() if re.search(r"\w", token))
    return counts


def vague_locals() -> list[Place]:
    """Return bindings of local names that are no nouns."""
    places = []
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _VAGUE:
                places.append(Place(path, node.lineno, node.id))
    return places


def participle_functions() -> list[Place]:
    """Return functions and methods that are named by a participle; properties do not count."""
    places = []
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if any("property" in ast.unparse(each) for each in node.decorator_list):
                continue
            name = node.name.strip("_")
            is_boolean = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
            if not is_boolean and "_" not in name and _is_participle(name):
                places.append(Place(path, node.lineno, node.name))
    return places


def _is_participle(word: str) -> bool:
    return word in _PARTICIPLES or (word.endswith("ed") and word not in _NO_PARTICIPLES)


def lonely_modules() -> list[Place]:
    """Return modules of at most 120 lines that only one module in their folder imports: do they have a subject?"""
    importers = defaultdict(set)
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    importers[name].add(path)
    places = []
    for path in _trees():
        lines = len((PACKAGE / path).read_text(encoding="utf-8").splitlines())
        users = importers[".".join(("pylogseg", *Path(path).with_suffix("").parts))]
        if lines <= 120 and len(users) == 1 and Path(path).parent == Path(*users).parent:
            places.append(Place(path, lines, f"for {', '.join(users)}"))
    return places


def repeated_names() -> dict[str, list[str]]:
    """Return public functions and aliases of modules that stand in several modules, each with its modules.

    One operation has one name at all its doors: in Python, as a command, on Spark, for Arrow; and functions that each
    codec or table format has are named by their role.
    """
    homes = defaultdict(set)
    for path, tree in _trees().items():
        module = ".".join(("pylogseg", *Path(path).with_suffix("").parts)).removesuffix(".__init__")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name[0] != "_":
                is_door = (
                    f"{module}.{node.name}" in public()
                    or path.startswith(("spark/", "reading/arrow/"))
                    or _is_command(node)
                )
                homes[node.name].add("(a door)" if is_door else "(a role)" if node.name in _ROLES else path)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name[:1].isupper() and not name.isupper():  # a type
                    homes[name].add(path)
    return {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1}


def _is_command(node: ast.FunctionDef) -> bool:
    return any(re.search(r"\b(command|group)\b", ast.unparse(decorator)) for decorator in node.decorator_list)
