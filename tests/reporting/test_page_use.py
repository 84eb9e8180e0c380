"""Tests of reporting/page.py. The page of a report in use: search, sort, filter, zoom, hints, links, copies, dark,
paper, hostile names.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.browser import Opened, tab
from helpers.depth import IS_DEEP, some_of
from helpers.shell import pylogseg

from pylogseg.reporting.page import page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><svg onload=alert(1)>",
    "\u202egnp.exe\u2066",
    "'`${alert(1)}&lt;b&gt;",
    "ж" * 125,
    "a b/../#orders-3@2",
)
PAGES = ("", "txn-a-0", "topic/txn-a", "bad-magic-0", "no-such-partition-7")
IN_THE_DARK = PAGES if IS_DEEP else ("bad-magic-0",)


@pytest.fixture(scope="module")
def facts(golden: Path, examples: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Facts of the examples, with a damaged partition beside them since an earlier report, and some payloads."""
    folder = shutil.copytree(examples, tmp_path_factory.mktemp("use") / "data")
    earlier = folder.with_name("earlier.json")
    earlier.write_bytes(pylogseg("report", folder, "--json").out)
    shutil.copytree(golden / "broker-4.3" / "damage" / "bad-magic" / "in", folder / "bad-magic-0")
    done = pylogseg("report", folder, "--full", "--sample", 5, "--json", "--compare", earlier)
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.fixture(scope="module")
def file(facts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(facts), encoding="utf-8")
    return path


def names(opened: Opened, caption: str, title: str) -> list[Any]:
    return [row[title] for row in opened.rows(caption)]


# ---- find ----


def test_search(opened: Opened, file: Path) -> None:
    """By keys alone: the words, the second hit, its page."""
    opened.go(file)
    field = opened.page.get_by_role("combobox", name="Find a topic or partition")
    field.fill("TXN-a")
    hits = opened.page.locator("#hits [role=option]")
    assert [hit.inner_text().split("\n")[0] for hit in hits.all()] == ["txn-a", "txn-a-0", "txn-a-1"]
    field.press("ArrowDown")
    field.press("Enter")
    opened.page.wait_for_url("**#txn-a-0")
    assert opened.text("h1") == "txn-a-0"
    assert "txn-a-0" in opened.page.title()
    field.fill("no such topic")
    assert opened.page.locator("#hits [role=option]").all_inner_texts() == ["No such name"]
    field.press("Escape")
    assert not opened.page.locator("#hits").is_visible()


def test_search_of_a_table(opened: Opened, file: Path) -> None:
    opened.go(file)
    tools = opened.page.locator("#part-topics .table")
    tools.get_by_label("Search").fill("codec-")
    assert set(names(opened, "Topics", "Topic")) == {
        f"codec-{codec}" for codec in ("gzip", "lz4", "none", "snappy", "zstd")
    }
    assert re.fullmatch(r"5 of \d+ rows", tools.locator(".rows").inner_text())
    tools.get_by_label("Search").fill("nothing of this name")
    assert "No rows." in tools.inner_text()


def test_sort(opened: Opened, file: Path, facts: dict[str, Any]) -> None:
    opened.go(file)
    by_size = sorted((topic["size"] for topic in facts["topics"]), reverse=True)
    assert names(opened, "Topics", "Size") == by_size
    head = opened.page.locator("#part-topics thead th", has_text="Topic")
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    ascending = names(opened, "Topics", "Topic")
    assert ascending == sorted(ascending, key=lambda name: name.replace("_", " "))
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert names(opened, "Topics", "Topic") == ascending[::-1]
    assert opened.page.locator("#part-topics th[aria-sort]").count() == 1


def test_filter(opened: Opened, file: Path, facts: dict[str, Any]) -> None:
    opened.go(file)
    part = opened.page.locator("#part-partitions")
    part.get_by_label("State").select_option("damage")
    assert names(opened, "Partitions", "Partition") == ["bad-magic-0"]
    part.get_by_label("State").select_option("")
    assert len(names(opened, "Partitions", "Partition")) == len(facts["partitions"])
    part = opened.page.locator("#part-findings")
    part.get_by_role("radio", name=re.compile("Damage")).check(force=True)
    levels = part.locator("li.finding")
    assert levels.count() == 1
    assert "damage" in (levels.first.get_attribute("class") or "")


# ---- time ----


def test_zoom(opened: Opened, file: Path) -> None:
    """By a drag, by buttons, by the fields, by keys; charts and tables follow."""
    opened.go(file, "bad-magic-0")
    chart = opened.page.locator("#part-time svg")
    chart.scroll_into_view_if_needed()
    bars = chart.locator("rect.bar").count()
    table = opened.rows("Segments")
    box = chart.bounding_box()
    assert box
    now = opened.page.locator(".zoom .now")
    assert "all of the time" in now.inner_text()
    opened.page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    opened.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60)
    opened.page.mouse.up()
    assert re.search(r"second.* of .*second", now.inner_text())
    assert 0 < chart.locator("rect.bar").count() < bars
    assert 0 < len(opened.rows("Segments")) < len(table)
    assert opened.page.locator("#part-segments rect.segment").count() == len(opened.rows("Segments"))
    narrow = now.inner_text()
    opened.page.get_by_role("button", name="Zoom in").click()
    assert now.inner_text() != narrow
    opened.page.get_by_role("button", name="Earlier").click()
    opened.page.get_by_role("button", name="All of the time").click()
    assert chart.locator("rect.bar").count() == bars
    chart.focus()
    chart.press("+")
    assert "all of the time" not in now.inner_text()
    opened.page.get_by_role("button", name="Zoom out").click()
    assert opened.rows("Segments") == table
    opened.page.get_by_label("To", exact=True).fill("2096-10-02T07:06:42")
    opened.page.get_by_label("To", exact=True).blur()
    assert len(opened.rows("Segments")) < len(table)


def test_hints(opened: Opened, file: Path, facts: dict[str, Any]) -> None:
    """Exact values below the pointer, and by the arrow keys; the same as in the table of the chart."""
    opened.go(file, "txn-a-0")
    partition = next(each for each in facts["partitions"] if each["name"] == "txn-a-0")
    tip = opened.page.locator("#tip")
    chart = opened.page.locator("#part-segments svg")
    chart.locator("rect.segment").first.hover()
    first = partition["segments"][0]
    assert first["name"] in tip.inner_text()
    assert f"{first['size']:,} bytes" in tip.inner_text()
    opened.page.get_by_role("radio", name="Offset").check(force=True)
    chart.focus()
    for segment in partition["segments"]:
        chart.press("ArrowRight")
        assert segment["name"] in tip.inner_text()
        assert f"{segment['baseOffset']:,} to {segment['nextOffset']:,}" in tip.inner_text()
    chart.press("Escape")
    assert not tip.is_visible()
    assert tip.get_attribute("aria-live") == "polite"


def test_units(opened: Opened, file: Path, facts: dict[str, Any]) -> None:
    """Bytes and records of a chart are those of its table, and both those of the partition."""
    opened.go(file, "cmp-short-0")
    partition = next(each for each in facts["partitions"] if each["name"] == "cmp-short-0")
    rows = opened.rows("Written by time")
    assert sum(row["Records"] for row in rows) + partition["series"]["untimed"] == partition["records"]
    chart = opened.page.locator("#part-time svg")
    before = chart.inner_html()
    opened.page.locator("#part-time").get_by_role("radio", name="Records").check(force=True)
    assert chart.inner_html() != before


# ---- links, copies ----


def test_links(opened: Opened, file: Path) -> None:
    opened.go(file)
    opened.page.locator("#part-findings").get_by_role("link", name="bad-magic-0").click()
    assert opened.text("h1") == "bad-magic-0"
    opened.page.locator("#crumbs").get_by_role("link", name="bad-magic").click()
    assert opened.text("h1") == "bad-magic"
    opened.page.locator("#part-partitions").get_by_role("link", name="bad-magic-0").first.click()
    opened.page.go_back()
    assert opened.text("h1") == "bad-magic"
    opened.page.locator("#crumbs").get_by_role("link", name="Overview").click()
    assert opened.text("h1") == "What is on this disk"
    opened.at("txn-a-1/segments")
    assert opened.text("h1") == "txn-a-1"
    assert opened.page.evaluate("document.activeElement.id") == "title-segments"
    opened.at("nowhere-12")
    assert "nowhere-12 was not on the disk" in opened.text("main")


def test_what_is_aggregated(opened: Opened, facts: dict[str, Any], tmp_path: Path) -> None:
    """Partitions of one name on two disks have a page each; what is left out or merged is said."""
    first = next(each for each in facts["partitions"] if each["name"] == "txn-a-0")
    merged = {**first["segments"][0], "state": "merged", "name": "7 segments", "merged": 7}
    second = {**first, "path": "/disk2/txn-a-0", "disk": "/disk2", "segments": [merged], "segmentsNotListed": 7}
    more = {"partitions": [*facts["partitions"], second], "partitionsNotListed": 2345}
    scope = {**facts["scope"], "aggregated": "the largest 1,000 of 3,345 partitions are shown"}
    file = tmp_path / "report.html"
    file.write_text(page({**facts, **more, "scope": scope}), encoding="utf-8")
    opened.go(file)
    assert scope["aggregated"] in opened.text("main")
    assert "2,345 partitions more" in opened.text("#part-partitions")
    places = []
    for link in opened.page.locator("#part-partitions").get_by_role("link", name="txn-a-0").all():
        places.append(link.get_attribute("href"))
    assert places == ["#txn-a-0", "#txn-a-0@2"]
    for place, path in zip(places, (first["path"], second["path"]), strict=True):
        assert opened.at(place.removeprefix("#")).text(".paths") == path
    assert opened.tiles()["Segments"] == 7
    assert "7 segments of the oldest are merged" in opened.text("#part-segments")


def test_sections_have_addresses(opened: Opened, file: Path) -> None:
    """A click on a part changes the address, which leads there again; what was chosen on the page stays."""
    opened.go(file)
    opened.page.locator("#part-topics").get_by_label("Search").fill("codec")
    opened.page.locator("#parts").get_by_role("link", name="Disks").click()
    assert opened.page.evaluate("[location.hash, document.activeElement.id]") == ["#/disks", "title-disks"]
    assert opened.page.locator("#part-topics").get_by_label("Search").input_value() == "codec"


def test_far_times_and_days(opened: Opened, facts: dict[str, Any], tmp_path: Path) -> None:
    """A clock that is wrong by years hides no chart, and a disk that lasts for ages is no number of days."""
    later = facts["madeMs"] + 70 * 365 * 86_400_000
    series = {**facts["series"], "starts": [*facts["series"]["starts"], later]}
    series |= {name: [*facts["series"][name], 1] for name in ("records", "bytes")}
    none = {name: {**facts["growth"][name], "starts": [], "records": [], "bytes": []} for name in ("hours", "days")}
    disks = [{**each, "fullInDays": 7_999_961.4} for each in facts["disks"]]
    file = tmp_path / "report.html"
    changed = {"series": series, "growth": {**facts["growth"], **none}, "disks": disks}
    file.write_text(page({**facts, **changed}), encoding="utf-8")
    opened.go(file)
    assert "up to 209" in opened.text("#part-growth")
    shown = opened.page.locator("#part-growth .zoom input").evaluate_all("all => all.map(each => each.value)")
    assert max(shown) < "2090"
    assert "more than 10 years" in opened.text("#part-disks")


@pytest.mark.parametrize(
    ("years", "says"), [(70, "after this report, up to 209"), (-40, "long before the others, from 19")]
)
def test_far_times_of_a_partition(opened: Opened, facts: dict[str, Any], tmp_path: Path, years: int, says: str) -> None:
    """One record of a clock that is wrong by years does not make a line of the others: it is said, and a zoom away."""
    part = next(each for each in facts["partitions"] if each["name"] == "ret-bytes-0")
    series = dict(part["series"])
    at = len(series["starts"]) if years > 0 else 0
    for name, value in {"starts": facts["madeMs"] + years * 365 * 86_400_000, "records": 1, "bytes": 1}.items():
        series[name] = [*series[name][:at], value, *series[name][at:]]
    parts = [{**each, "series": series} if each is part else each for each in facts["partitions"]]
    file = tmp_path / "report.html"
    file.write_text(page({**facts, "partitions": parts}), encoding="utf-8")
    opened.go(file, "ret-bytes-0")
    assert says in opened.text("main")
    first, last = opened.page.locator(".zoom input").evaluate_all("all => all.slice(0, 2).map(each => each.value)")
    assert "2020" < first <= last < "2090"


def test_times_that_are_all_far(opened: Opened, file: Path) -> None:
    """Records whose times are all after the report are shown."""
    opened.go(file, "txn-a-0")
    assert "after this report" not in opened.text("main")
    assert opened.page.locator("#part-segments svg rect.segment").count() == 4


def test_names_not_listed(opened: Opened, facts: dict[str, Any], tmp_path: Path) -> None:
    """By search, by address and in its topic: on the disk, not in this report, and the command that shows it."""
    first = next(each for each in facts["partitions"] if each["name"] == "txn-a-0")
    others = {"namesNotListed": ["elsewhere-7", "txn-a-0"], "commandOfOthers": "pylogseg report /d NAME -o report.html"}
    file = tmp_path / "report.html"
    kept = [each for each in facts["partitions"] if each is not first]
    file.write_text(page({**facts, **others, "partitions": kept}), encoding="utf-8")
    opened.go(file, "topic/txn-a")
    opened.page.locator("#part-partitions").get_by_role("link", name="txn-a-0").click()
    assert opened.text("h1") == "txn-a-0"
    assert "On the disk, not in this report" in opened.text("main")
    assert "pylogseg report /d txn-a-0 -o report.html" in opened.text("main")
    assert "On the disk, not in this report" in opened.at("topic/elsewhere").text("main")
    field = opened.page.get_by_role("combobox", name="Find a topic or partition")
    field.fill("elsewhere")
    assert "on the disk, not in this report" in opened.page.locator("#hits").inner_text()
    field.press("Enter")
    assert opened.text("h1") == "elsewhere-7"


def test_copy(browser: Browser, file: Path, facts: dict[str, Any]) -> None:
    """The commands of a finding, into the clipboard."""
    opened = tab(browser, permissions=["clipboard-read", "clipboard-write"])
    opened.go(file, "bad-magic-0")
    (finding,) = [each for each in facts["findings"] if each["topic"] == "bad-magic"]
    for command in finding["commands"]:
        opened.page.locator("#part-findings").get_by_role("button", name=f"Copy: {command['text']}", exact=True).click()
        opened.page.locator("#tip", has_text="Copied").wait_for()
        assert opened.page.evaluate("navigator.clipboard.readText()") == command["text"]
    opened.page.context.close()
    assert opened.wrong == []


def test_csv(opened: Opened, file: Path) -> None:
    """A table and its CSV have the same rows, as filtered and sorted."""
    opened.go(file)
    part = opened.page.locator("#part-topics")
    part.get_by_label("Search").fill("codec")
    part.get_by_role("button", name="Partitions").click()
    text = opened.saved(lambda: part.get_by_role("button", name="CSV").click())
    found = list(csv.DictReader(io.StringIO(text)))
    shown = opened.rows("Topics")
    assert [row["Topic"] for row in found] == [row["Topic"] for row in shown]
    assert [int(row["Size"]) for row in found] == [row["Size"] for row in shown]


def test_in_a_frame(opened: Opened, file: Path, tmp_path: Path) -> None:
    """As a notebook shows it: its links stay in the frame, and a copy that is forbidden is said."""
    outer = tmp_path / "notebook.html"
    text = html.escape(file.read_text(encoding="utf-8"), quote=True)
    rights = 'sandbox="allow-scripts allow-downloads" style="width:1000px;height:800px"'
    outer.write_text(f'<title>notebook</title><iframe {rights} srcdoc="{text}"></iframe>', encoding="utf-8")
    opened.page.goto(outer.as_uri())
    frame = opened.page.frame_locator("iframe")
    frame.locator("#part-findings").get_by_role("link", name="bad-magic-0").click()
    frame.locator("h1", has_text="bad-magic-0").wait_for()
    assert opened.page.url == outer.as_uri()


# ---- light, dark, paper, phone, screen readers ----


def ground(opened: Opened) -> str:
    colour: str = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def test_light_and_dark(browser: Browser, file: Path) -> None:
    """As the system has it, until somebody chooses; the choice stays."""
    light, dark = tab(browser, color_scheme="light").go(file), tab(browser, color_scheme="dark").go(file)
    grounds = [ground(light), ground(dark)]
    assert grounds[0] != grounds[1]
    button = light.page.locator("#theme")
    for _ in range(3):
        if button.get_attribute("aria-label") == "Colours: dark":
            break
        button.click()
    assert ground(light) == grounds[1]
    light.page.reload()
    light.page.wait_for_selector("html[data-ready]")
    assert ground(light) == grounds[1]
    for opened in (light, dark):
        opened.page.context.close()
        assert opened.wrong == []


def test_paper(opened: Opened, file: Path) -> None:
    """On it every chart has its numbers, every list all of its rows, and no button is seen; the PDF has pages."""
    opened.go(file, "txn-a-0")
    assert not opened.page.locator("#part-time table").count()
    assert opened.page.pdf().count(b"/Type /Page\n") > 1
    opened.page.emulate_media(media="print")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.page.locator("#part-time table").is_visible()
    assert [
        each
        for each in opened.page.locator("button").all()
        if each.is_visible() and not each.evaluate("e => e.closest('thead')")
    ] == []
    assert not opened.page.locator("#top").is_visible()
    assert ground(opened) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("place", PAGES)
def test_phone(browser: Browser, file: Path, place: str) -> None:
    """Nothing is wider than the screen but what scrolls by itself."""
    opened = tab(browser, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True).go(file, place)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    opened.page.context.close()
    assert opened.wrong == []


@pytest.mark.parametrize(
    ("place", "scheme"),
    [*((place, "light") for place in some_of(PAGES, 4)), *((place, "dark") for place in IN_THE_DARK)],
)
def test_accessibility(browser: Browser, file: Path, place: str, scheme: Any) -> None:
    opened = tab(browser, color_scheme=scheme).go(file, place)
    opened.page.evaluate("document.querySelectorAll('details.numbers').forEach(each => { each.open = true })")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # What passes is only counted: a list of its elements took as long as to look at them.
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if scheme == "dark":  # nothing but the colours differs
        options["runOnly"] = ["color-contrast"]
    found = axe.run(opened.page, options=options).response
    assert len(found["passes"]) >= (20 if scheme == "light" else 1)
    serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious] == []
    opened.page.context.close()


def test_keys(opened: Opened, file: Path) -> None:
    """The first key leads to the content; what has the focus is seen to have it."""
    opened.go(file)
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "main"
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.querySelector('main').contains(document.activeElement)")
    assert opened.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


# ---- what the disk says is text ----


def swapped(value: Any, name: str) -> Any:
    """Facts in which each text of the disk that names txn-a, and each payload, is something hostile."""
    if isinstance(value, str):
        return value.replace("txn-a", name)
    if isinstance(value, dict):
        hostile = dict.fromkeys(
            ("key", "value", "reason", "remedy", "group", "transactionalId", "verdict", "settingsSource"), name
        )
        return {
            key: name if key in hostile and isinstance(item, str) else swapped(item, name)
            for key, item in value.items()
        }
    return [swapped(item, name) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", some_of(HOSTILE, 4), ids=some_of(range(len(HOSTILE)), 4))
def test_hostile(opened: Opened, facts: dict[str, Any], tmp_path: Path, name: str) -> None:
    """Names, keys, values, reasons, commands: shown as they are; nothing of them becomes an element or runs."""
    file = tmp_path / "report.html"
    file.write_text(page(swapped(facts, name)), encoding="utf-8")
    opened.go(file)
    allowed = opened.page.evaluate(
        "[...document.querySelectorAll('script, img, iframe, object, embed, link, base')].map(each => each.tagName)"
    )
    assert allowed == ["SCRIPT", "SCRIPT"]
    assert opened.page.locator(".verdict").inner_text().endswith(name)
    shown = set(opened.page.locator("#part-topics tbody th").all_inner_texts())
    assert name in shown
    opened.page.locator("#part-topics tbody th a", has=opened.page.get_by_text(name, exact=True)).click()
    assert opened.text("h1") == name
    opened.page.locator("#part-partitions tbody th a").first.click()
    assert opened.text("h1") == f"{name}-0"
    assert opened.page.evaluate("document.querySelector('h1 bdi').textContent") == f"{name}-0"
    assert {name} == {row["Key"] for row in opened.rows("Sampled records")} - {None}
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1280
    field = opened.page.locator("#search")
    field.fill(name)
    assert opened.page.locator("#hits [role=option]").first.locator("bdi").inner_text() == name


def test_policy(browser: Browser, file: Path) -> None:
    """A script, a style and a picture that would get into the page are refused by it."""
    opened = tab(browser).go(file)
    failed: list[str | None] = []
    opened.page.on("requestfailed", lambda request: failed.append(request.failure))
    tries = {
        "script": "const s = document.createElement('script'); s.textContent = 'ran = 1'; document.body.append(s)",
        "html": "document.body.innerHTML = '<img src=x onerror=\"window.ran = 1\">'",
        "picture": "const i = new Image(); i.src = 'https://example.invalid/x.png'; document.body.append(i)",
        "style": "const s = document.createElement('style'); s.textContent = '* { display: none }'; "
        "document.body.append(s)",
        "fetch": "await fetch('https://example.invalid/')",
    }
    for each in tries.values():
        before = len(opened.wrong)
        opened.page.evaluate(f"async () => {{ try {{ {each} }} catch (error) {{ console.error(String(error)) }} }}")
        for _ in range(600):
            if len(opened.wrong) > before:
                break
            opened.page.wait_for_timeout(100)
        assert len(opened.wrong) > before, each
    assert opened.page.evaluate("window.ran") is None
    assert opened.page.locator("body").is_visible()
    assert failed == ["csp"] * len(failed), "a request left the page"
    opened.page.context.close()
