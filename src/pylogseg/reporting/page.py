"""The page of a report: one HTML file that needs no server and no network.

Its style and its script are in `assets`. The facts are in the page as compressed JSON: as plain JSON those of a
thousand partitions would be several times larger, and in Base64 nothing of the disk can end the element it stands in.
The script writes all of it as text. The content security policy allows this style and this script, by their hashes, and
forbids everything else: other scripts, requests, frames, forms.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import importlib.resources
import json
import zlib
from typing import Any

#: Of the script, in their order.
_PARTS = ("base", "table", "charts", "findings", "overview", "since", "segments", "partition", "main")
SCRIPTS = tuple(f"{name}.js" for name in _PARTS)

_PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="auto">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="pylogseg {version}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header id="top"></header>
<main id="main" tabindex="-1"><h1>Report of {paths}</h1>
<p>{verdict}</p>
<noscript><p>The tables and charts of this page are drawn by its script, and scripts are switched off.
<code>pylogseg report --json</code> prints the same facts.</p></noscript></main>
<div id="tip" role="status" aria-live="polite"></div>
<script type="application/octet-stream" id="facts">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(facts: dict[str, Any]) -> str:
    """Return the HTML of a report from its facts in the form of `pylogseg.format.columns.to_json`."""
    style, script = _assets()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    text = json.dumps(facts, separators=(",", ":"))
    paths = ", ".join(facts["paths"])
    return _PAGE.format(
        policy=policy,
        version=_text(facts["pylogseg"]),
        title=_text(f"{paths}: pylogseg report"),
        style=style,
        paths=_text(paths),
        verdict=_text(facts["verdict"]),
        data=base64.b64encode(zlib.compress(text.encode(), 9)).decode(),
        script=script,
    )


@functools.cache
def _assets() -> tuple[str, str]:
    folder = importlib.resources.files("pylogseg.reporting").joinpath("assets")
    style, *scripts = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", *SCRIPTS))
    return style, '"use strict";\n(() => {\n' + "".join(scripts) + "})();\n"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(text: str) -> str:
    """Text for HTML; a surrogate that stands alone cannot be written as UTF-8."""
    return html.escape(text.encode("utf-8", "replace").decode())
