"""Hostile bytes that coverage leads to: libFuzzer, by atheris, on the targets of `hostile`.

    tests/sanitize.sh guided CORPUS [--target NAME ...] [--minutes M] [--only FILE] [--pack]

The bytes that libFuzzer mutates are what a target draws instead of random numbers (`helpers/kept_inputs.py`), so what
it learns is which batch, which harm and which options reach new code: of Python, and of the kernels, which
`sanitize.sh` builds with clang's counters and AddressSanitizer. CORPUS has a folder for each target; it begins with
what the repository keeps, grows, and is thinned at the end to what covers as much. `--pack` writes from it what the
repository keeps, which `test_hostile.py` tries in every run. Exit code 1, with the input and the command that repeats
it, if one breaks a target.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers import kept_inputs

from soak import itself

LONGEST_BYTES = 4096
#: Seconds that one input may take, under a sanitizer.
SLOWEST_S = 20
#: Of a target's inputs in the archive.
MOST_KEPT_BYTES = 24_000


def fuzz(target: str, words: list[str]) -> None:
    """Hand this process over to libFuzzer, with its own arguments; or try the one file of a word."""
    import atheris

    # Before anything else has imported it: only what is imported here tells what it reached.
    with atheris.instrument_imports(include=["pylogseg"]):
        from soak import hostile
    logging.getLogger("pylogseg").setLevel(logging.CRITICAL)
    attack = hostile.TARGETS[target][0]
    atheris.Setup([target, *words], lambda data: attack(kept_inputs.Drawn(data)))
    atheris.Fuzz()


def child(target: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run libFuzzer on a target in a process of its own."""
    command = [*itself(__file__), "--libfuzzer", target, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)


def last(pattern: str, text: str) -> str:
    """The last number that a pattern finds."""
    return (re.findall(pattern, text) or ["?"])[-1]


def one(target: str, corpus: Path, seconds: int) -> bool:
    """Fuzz a target for so long, and thin its corpus; True if nothing broke."""
    folder = corpus / target
    folder.mkdir(parents=True, exist_ok=True)
    for data in kept_inputs.kept().get(target, []):
        (folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)  # as libFuzzer names it
    before = len(list(folder.iterdir()))
    broken = corpus / "broken"
    broken.mkdir(exist_ok=True)
    limits = [f"-max_len={LONGEST_BYTES}", f"-timeout={SLOWEST_S}", "-rss_limit_mb=4096"]
    done = child(
        target, folder, *limits, f"-max_total_time={seconds}", "-print_final_stats=1", f"-artifact_prefix={broken}/"
    )
    counts = {name: last(rf"{name}: *(\d+)", done.stderr) for name in ("cov", "ft", "stat::number_of_executed_units")}
    if done.returncode:
        file = last(r"Test unit written to (\S+)", done.stderr)
        print(
            f"{done.stdout[-2000:]}{done.stderr[-4000:]}\n{target}: broken; again with: "
            f"tests/sanitize.sh guided {corpus} --target {target} --only {file}"
        )
        return False
    with tempfile.TemporaryDirectory(dir=corpus) as thin:
        merged = child(target, "-merge=1", *limits, thin, folder)
        if merged.returncode == 0 and any(Path(thin).iterdir()):
            shutil.rmtree(folder)
            shutil.copytree(thin, folder)
    print(
        f"{target:10} {counts['stat::number_of_executed_units']} inputs in {seconds} s, {counts['cov']} edges, "
        f"{counts['ft']} features; corpus {before} -> {len(list(folder.iterdir()))}",
        flush=True,
    )
    return True


def main() -> None:
    """Fuzz all targets, or the ones named."""
    if sys.argv[1:2] == ["--libfuzzer"]:
        fuzz(sys.argv[2], sys.argv[3:])
        return
    from soak import hostile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--target", action="append", choices=sorted(hostile.TARGETS))
    parser.add_argument("--minutes", type=float, default=10, help="for all targets together")
    parser.add_argument("--only", type=Path, help="an input to try again")
    parser.add_argument("--pack", action="store_true", help="write the archive from CORPUS; nothing is tried")
    options = parser.parse_args()
    targets = options.target or sorted(hostile.TARGETS)
    if options.pack:
        kept_inputs.pack(options.corpus, MOST_KEPT_BYTES)
        print(f"{kept_inputs.ARCHIVE}: {kept_inputs.ARCHIVE.stat().st_size} bytes")
    elif options.only:
        done = child(targets[0], options.only)
        print(done.stdout + done.stderr)
        sys.exit(done.returncode)
    else:
        seconds = max(round(60 * options.minutes / len(targets)), 1)
        broken = [target for target in targets if not one(target, options.corpus, seconds)]
        sys.exit(bool(broken))


if __name__ == "__main__":
    main()
