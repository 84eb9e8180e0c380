#!/usr/bin/env python3
"""Packs golden folders into the archives beside this file; the same input gives the same bytes.

    pack.py GOLDEN          GOLDEN/replay and what is in broker-*, inside, old and tier -> *.tar.xz, SHA256SUMS

The archives are committed once and never rewritten: this is how they were made.
A folder whose archive would pass 1 MiB is cut into parts that unpack over each other.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PART_BYTES = 1 << 20
PRESET = 9 | lzma.PRESET_EXTREME


def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Drop what belongs to the machine that packs: owner, times, modes."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.isdir() else 0o644
    return info


def pack(root: Path, paths: list[Path]) -> bytes:
    """Return a compressed archive of exactly ``paths``, named relative to ``root``."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in paths:
            archive.add(path, path.relative_to(root).as_posix(), recursive=False, filter=plain)
    return lzma.compress(raw.getvalue(), preset=PRESET)


def parts(root: Path, folder: Path) -> list[bytes]:
    """Pack ``folder`` into as few runs of about equal size as keep every archive below the limit."""
    paths = sorted(folder.rglob("*"))
    sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
    for count in range(1, len(paths) + 1):
        cuts: list[list[Path]] = [[] for _ in range(count)]
        total = 0
        for path, size in zip(paths, sizes, strict=True):
            cuts[min(count - 1, total * count // max(1, sum(sizes)))].append(path)
            total += size
        archives = [pack(root, cut) for cut in cuts if cut]
        if max(map(len, archives)) < PART_BYTES:
            return archives
    raise ValueError(f"{folder}: one file alone packs to more than {PART_BYTES} bytes")


def main() -> None:
    """Write the archives of one golden folder and their checksums."""
    source = Path(sys.argv[1])
    sums = {}
    names = ("broker-4.3", "broker-4.4", "inside", "old", "tier")
    several = [p for name in names for p in sorted((source / name).iterdir()) if p.is_dir()]
    for folder in (source / "replay", *several):
        name = folder.relative_to(source).as_posix()
        archives = parts(source, folder)
        for number, archive in enumerate(archives, 1):
            target = HERE / (f"{name}.tar.xz" if len(archives) == 1 else f"{name}.{number}.tar.xz")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(archive)
            sums[target.relative_to(HERE).as_posix()] = hashlib.sha256(archive).hexdigest()
    lines = [f"{digest}  {name}\n" for name, digest in sorted(sums.items())]
    (HERE / "SHA256SUMS").write_text("".join(lines), encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
