"""The pictures of reports in docs/pictures: of a broker's week with one damaged batch, and of golden directories.

    python tests/soak report-pictures [FOLDER]

Needs Chromium and the extras `test` and `docs`. The week is drawn from a seed and a fixed time, so that the pictures
change only if the page does. Prints the size of each.
"""

from __future__ import annotations

import io
import math
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from helpers.browser import started, tab
from helpers.golden import GOLDEN, unpack
from PIL import Image

import pylogseg
from soak import EXAMPLES, ROOT

LARGEST_BYTES = 200_000
HOUR = 3_600_000
#: Where the week ends.
NOW = 1_767_614_400_000
#: Partitions of a topic, its codec, records an hour at noon, bytes of a value.
TOPICS = {
    "orders": (3, "zstd", 60, 160),
    "clicks": (2, "lz4", 160, 60),
    "payments": (2, "gzip", 25, 220),
    "users": (1, "none", 12, 90),
}
#: File name, source, place in the page, width and height, dark.
PICTURES = (
    ("report-overview.png", "week", "", (1240, 1400), False),
    ("report-partition.png", "week", "orders-1", (1240, 1440), False),
    ("report-damage.png", "damaged", "bit-second-0", (1240, 1060), True),
    ("report-golden.png", "golden", "/topics", (1240, 1000), False),
    ("report-phone.png", "week", "clicks-0/segments", (390, 844), True),
)


def write_week(folder: Path) -> None:
    """Write a week of orders, more by day than by night; a bit of one batch is flipped then."""
    folder.mkdir()
    (folder / "meta.properties").write_text("version=1\ncluster.id=Mk3OEYBSD34fcwNTJENDM2\nnode.id=1\n")
    dice = random.Random(7)
    for topic, (partitions, codec, most, size) in TOPICS.items():
        for number in range(partitions):
            policy = "compact" if topic == "users" else "delete"
            settings = {"segment_bytes": 120_000, "cleanup_policy": policy, "retention_ms": 5 * 24 * HOUR}
            with pylogseg.open_log(folder / f"{topic}-{number}", **settings) as log:
                for hour in range(-7 * 24, 0):
                    day = 0.55 - 0.45 * math.cos(2 * math.pi * ((hour % 24) / 24))
                    count = int(most * day * dice.uniform(0.7, 1.2) * (1 + number / 4)) + 1
                    times = sorted(NOW + hour * HOUR + dice.randrange(HOUR) for _ in range(count))
                    log.append(
                        [(at, b"%s-%d" % (topic.encode(), dice.randrange(900)), value(dice, size)) for at in times],
                        compression=codec,
                    )
    log_file = sorted((folder / "orders-1").glob("*.log"))[1]
    data = bytearray(log_file.read_bytes())
    data[len(data) // 2] ^= 0x10
    log_file.write_bytes(data)


def value(dice: random.Random, size: int) -> bytes:
    words = ("shipped", "paid", "open", "returned", "Berlin", "Lagos", "Lima", "Osaka")
    text = " ".join(dice.choice(words) for _ in range(size // 8))
    return f'{{"id": {dice.randrange(10**9)}, "note": "{text}"}}'.encode()


def copy_damaged(folder: Path) -> None:
    """Copy golden partitions that somebody damaged."""
    unpack(GOLDEN.rglob("*.tar.xz"), Path("unpacked"))
    for case in ("bit-second", "garbage-tail", "bad-index-clean", "intact"):
        shutil.copytree(Path("unpacked") / "broker-4.3" / "damage" / case / "in", folder / f"{case}-0")


def optimised(picture: bytes) -> bytes:
    """Return a PNG of at most 256 colours."""
    out = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    return out.getvalue()


def main() -> None:
    """Write the pictures."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "pictures").resolve()
    out.mkdir(parents=True, exist_ok=True)
    examples = EXAMPLES
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # the paths on the page are short
        write_week(Path("kafka"))
        copy_damaged(Path("damaged"))
        shutil.copytree(examples, "golden")
        pages = {}
        for name, folder in {"week": "kafka", "damaged": "damaged", "golden": "golden"}.items():
            pages[name] = Path(f"{name}.html").resolve()
            pylogseg.report(folder, full=True, now_ms=NOW).write(pages[name])
        with started() as browser:
            for file, source, place, (width, height), is_dark in PICTURES:
                scheme = "dark" if is_dark else "light"
                opened = tab(
                    browser, viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
                )
                opened.go(pages[source], place)
                opened.page.wait_for_timeout(500)
                data = optimised(opened.page.screenshot())
                assert len(data) < LARGEST_BYTES, f"{file}: {len(data)} bytes"
                (out / file).write_bytes(data)
                print(f"{file}  {width} x {height}  {len(data):,} bytes")


if __name__ == "__main__":
    main()
