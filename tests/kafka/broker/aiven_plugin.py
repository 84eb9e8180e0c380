"""What a broker has to be told to tier by Aiven's plugin, and where the plugin puts its objects."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from helpers.tiers import Key

_CLASS = "io.aiven.kafka.tieredstorage"
_SECRET = "uWq8Zr3kT5vYx2Nn7Ld4"  # of the S3 server: so odd that it can be looked for


@dataclass
class Place:
    """Where objects are put.

    Attributes
    ----------
    name, url : str
        The URL is that of the tier.
    files : fsspec file system
    root : str
        The path of the tier in it.
    lines : list of str
        What the plugin is told of it.
    storage : dict
        What `open_tier` is told of it.
    secrets : list of str
        What must not be shown.
    """

    name: str
    url: str
    files: Any
    root: str
    lines: list[str]
    storage: dict[str, Any] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)

    def objects(self, suffix: str) -> list[str]:
        """The paths of objects that end so, as they are now."""
        self.files.invalidate_cache()
        return sorted(path for path in self.files.find(self.root) if path.endswith(suffix))


def in_folder(folder: Path) -> Place:
    """A place on the disk, by the plugin's storage for file systems."""
    folder.mkdir(parents=True)
    lines = [f"storage.backend.class={_CLASS}.storage.filesystem.FileSystemStorage", f"storage.root={folder}"]
    return Place("files", f"aiven+file://{folder}/pre", fsspec.filesystem("file"), f"{folder}/pre", lines)


def in_store(on_put: Callable[[str], bool]) -> Place:
    """A place in a server that speaks S3, which runs in this process; `on_put` sees each PUT and may refuse it."""
    from soak.object_store import Store

    store = Store(on_put)
    storage = {**store.options, "secret": _SECRET}
    endpoint = storage["client_kwargs"]["endpoint_url"]
    # For the commands, which are given no options.
    os.environ.update(AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY=_SECRET, AWS_ENDPOINT_URL=endpoint)
    files = fsspec.filesystem("s3", **storage)
    files.mkdir("tiers")
    lines = [
        f"storage.backend.class={_CLASS}.storage.s3.S3Storage",
        "storage.s3.bucket.name=tiers",
        f"storage.s3.endpoint.url={endpoint}",
        "storage.s3.region=us-east-1",
        "storage.s3.path.style.access.enabled=true",
        "storage.aws.access.key.id=id",
        f"storage.aws.secret.access.key={_SECRET}",
    ]
    return Place("S3", "aiven+s3://tiers/pre", files, "tiers/pre", lines, storage, [_SECRET])


def make_keys(folder: Path, *names: str) -> Path:
    """Make pairs of keys; the folder with the private ones, as `--keys` takes it."""
    ring, public = folder / "ring", folder / "public"
    public.mkdir(parents=True)
    for name in names:
        key = Key.make(name, ring).private.public_key()
        (public / f"{name}.pem").write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return ring


def key_lines(ring: Path, active: str) -> list[str]:
    """Settings that encrypt by one key of a ring, and decrypt by all."""
    names = sorted(path.stem for path in ring.glob("*.pem"))
    lines = ["encryption.enabled=true", f"encryption.key.pair.id={active}", f"encryption.key.pairs={','.join(names)}"]
    for name in names:
        lines.append(f"encryption.key.pairs.{name}.private.key.file={ring / f'{name}.pem'}")
        lines.append(f"encryption.key.pairs.{name}.public.key.file={ring.parent / 'public' / f'{name}.pem'}")
    return lines


def broker_lines(plugin: Path, place: Place, plugin_lines: list[str], more: Mapping[str, object]) -> list[str]:
    """Lines of server.properties for a broker that tiers."""
    of_plugin = ["key.prefix=pre/", *place.lines, *plugin_lines]
    return [
        "remote.log.storage.system.enable=true",
        f"remote.log.storage.manager.class.name={_CLASS}.RemoteStorageManager",
        f"remote.log.storage.manager.class.path={plugin}/*",
        "remote.log.metadata.manager.listener.name=PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions=2",
        "remote.log.manager.task.interval.ms=500",
        "log.retention.check.interval.ms=500",
        *(f"rsm.config.{line}" for line in of_plugin),
        *(f"{name}={value}" for name, value in more.items()),
    ]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens at."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found
