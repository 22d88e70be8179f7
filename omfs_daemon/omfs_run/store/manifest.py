"""The manifest of a generation: written when it is complete, verified before a restart.

It has a checksum of each block of ``BLOCK`` bytes, so that several threads can add up one large image: CRC-32, which
finds what was cut off, torn, or changed by accident. The directory is its owner's: forgery is none of its concern.
"""

import hashlib
import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

from omfs_daemon.omfs_run.drivers.driver import Image
from omfs_daemon.omfs_run.store import files
from omfs_daemon.omfs_run.store.computed_time import MOST_SECONDS

NAME = "manifest.json"
BLOCK = 16 * 1024 * 1024

_FORMAT = 2
_CHECKSUMS = {1: "sha256", 2: "crc32"}  # of each format
_LIMIT = 64 * 1024 * 1024  # bytes of a manifest
_THREADS = 8


class BadManifest(Exception):
    """A manifest is invalid, or a generation differs from it; the text says how."""


class Manifest(NamedTuple):
    """``computed``: seconds that the program had computed at this checkpoint, over all runs of the job."""

    method: str
    image: Image
    computed: float
    argv: List[str]


def write_manifest(
    directory: int, generation: str, method: str, image: Image, computed: float, facts: Mapping[str, Any]
) -> int:
    """Add up all files, write them to disk, and write the manifest last; returns their bytes.

    ``facts`` are for people (host, kernel, argv, …). BadManifest if a file is missing or not ours; OSError.
    """
    folders = {os.path.dirname(name) for name in image.files}
    described = _describe(directory, image.files, _CHECKSUMS[_FORMAT])
    for folder in sorted(folders - {""}, reverse=True):
        _sync_folder(directory, folder)
    size = sum(int(each["size"]) for each in described)
    content = {
        "format": _FORMAT,
        "generation": generation,
        "method": method,
        "tool": image.tool,
        "computed": computed,
        "bytes": size,
        "block": BLOCK,
        "files": described,
    }
    content.update((name, value) for name, value in facts.items() if name not in content)
    files.write_file(directory, NAME, json.dumps(content, indent=1) + "\n")
    return size


def verify_files(directory: int, generation: str) -> Manifest:
    """Read the manifest and verify every file, sizes first; BadManifest if anything differs."""
    manifest, content = _read(directory, generation)
    kind = _CHECKSUMS[content["format"]]
    try:
        for each in content["files"]:
            descriptor = files.open_file(directory, each["name"])
            try:
                _require_ours(descriptor, each["name"])
                size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            if size != each["size"]:
                raise BadManifest("{}: {} bytes instead of {}".format(each["name"], size, each["size"]))
            if len(each[kind]) != len(range(0, size, BLOCK)):  # before all of a sparse file is read
                raise BadManifest("{}: {} {} for {} bytes".format(each["name"], len(each[kind]), kind, size))
        found = {each["name"]: each[kind] for each in _describe(directory, manifest.image.files, kind, sync=False)}
        for each in content["files"]:
            if found[each["name"]] != each[kind]:
                raise BadManifest("{}: its contents have changed ({})".format(each["name"], kind))
    except OSError as error:
        raise BadManifest(str(error)) from None
    return manifest


def read_manifest(directory: int, generation: str) -> Manifest:
    """Read the manifest without checking the files; BadManifest if it is invalid."""
    return _read(directory, generation)[0]


def _read(directory: int, generation: str) -> Tuple[Manifest, Dict[str, Any]]:
    try:
        content = json.loads(files.read_file(directory, NAME, _LIMIT))
    except (OSError, ValueError, RecursionError) as error:
        raise BadManifest("{}: {}".format(NAME, error)) from None
    fault = _fault(content, generation)
    if fault:
        raise BadManifest("{}: {}".format(NAME, fault))
    names = [each["name"] for each in content["files"]]
    image = Image(names, content["tool"], sum(each["size"] for each in content["files"]))
    argv = [str(each) for each in content["argv"]] if isinstance(content.get("argv"), list) else []
    return Manifest(content["method"], image, float(content["computed"]), argv), content


def _fault(content: Any, generation: str) -> str:
    """What is wrong with the content of a manifest, or ""."""
    known = sorted(_CHECKSUMS)
    if not isinstance(content, dict) or content.get("format") not in known or isinstance(content["format"], bool):
        return "not of format {}".format(" or ".join(str(each) for each in known))
    if content.get("generation") != generation:
        return "of another generation"
    if not all(isinstance(content.get(name), str) for name in ("method", "tool")):
        return "method and tool must be strings"
    computed = content.get("computed")
    if not isinstance(computed, (int, float)) or isinstance(computed, bool) or not 0 <= computed < MOST_SECONDS:
        return "computed must be a number of seconds"
    if content.get("block") != BLOCK or not isinstance(content.get("files"), list):
        return "files must be listed, with checksums of blocks of {} bytes".format(BLOCK)
    seen: Set[str] = set()
    for each in content["files"]:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or not is_plain(each["name"]):
            return "a file's name must be plain and relative: {!r:.80}".format(each)
        if not isinstance(each.get("size"), int) or isinstance(each["size"], bool) or each["size"] < 0:
            return "{}: no size".format(each["name"])
        if not isinstance(each.get(_CHECKSUMS[content["format"]]), list):
            return "{}: no {}".format(each["name"], _CHECKSUMS[content["format"]])
        if each["name"] in seen:
            return "{}: listed twice".format(each["name"])
        seen.add(each["name"])
    return ""


def is_plain(name: str) -> bool:
    """Whether a file's name is relative, inside the generation, and printable."""
    return name.isprintable() and all(part not in ("", ".", "..") for part in name.split("/")) and name != NAME


def _describe(directory: int, names: Sequence[str], kind: str, sync: bool = True) -> List[Dict[str, Any]]:
    """Name, size and checksums of each file; with ``sync`` all are on disk when this returns."""
    checksum = _DIGESTS[kind]
    # One more for fsync, which waits for the disk while the others add up.
    threads = max(1, min(_THREADS, len(os.sched_getaffinity(0)))) + int(sync)
    described = []
    with ThreadPoolExecutor(threads) as pool:
        for name in names:
            if not is_plain(name):
                raise BadManifest("a file's name must be plain and relative: {!r:.80}".format(name))
            descriptor = files.open_file(directory, name)
            try:
                _require_ours(descriptor, name)
                size = os.fstat(descriptor).st_size
                synced = pool.submit(os.fsync, descriptor) if sync else None
                starts = range(0, size, BLOCK)
                digests = list(pool.map(lambda start, source=descriptor: checksum(source, start), starts))
                if synced is not None:
                    synced.result()
            finally:
                os.close(descriptor)
            described.append({"name": name, "size": size, kind: digests})
    return described


def _sha256(descriptor: int, start: int) -> str:
    digest = hashlib.sha256()
    for data in _block(descriptor, start):
        digest.update(data)
    return digest.hexdigest()


def _crc32(descriptor: int, start: int) -> str:
    value = 0
    for data in _block(descriptor, start):
        value = zlib.crc32(data, value)
    return "{:08x}".format(value & 0xFFFFFFFF)


_DIGESTS: Dict[str, Callable[[int, int], str]] = {"sha256": _sha256, "crc32": _crc32}


def _block(descriptor: int, start: int) -> Iterator[bytes]:
    end = start + BLOCK
    while start < end:
        data = os.pread(descriptor, min(1 << 20, end - start), start)
        if not data:
            return
        yield data
        start += len(data)


def _require_ours(descriptor: int, name: str) -> None:
    owner = os.fstat(descriptor).st_uid
    if owner != os.geteuid():
        raise BadManifest("{}: belongs to uid {}".format(name, owner))


def _sync_folder(directory: int, name: str) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
