"""The manifest of a generation: written when it is complete, verified before a restart.

It has a SHA-256 of each block of ``BLOCK`` bytes, so that several threads can hash one large image.
"""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Set, Tuple

from omfs_daemon.omfs_run.drivers.driver import Image
from omfs_daemon.omfs_run.store import files

NAME = "manifest.json"
BLOCK = 16 * 1024 * 1024

_FORMAT = 1
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
    """Hash all files, write them to disk, and write the manifest last; returns their bytes.

    ``facts`` are for people (host, kernel, argv, …). BadManifest if a file is missing or not ours; OSError.
    """
    folders = {os.path.dirname(name) for name in image.files}
    described = _describe(directory, image.files)
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
        found = {each["name"]: each["sha256"] for each in _describe(directory, manifest.image.files, sync=False)}
        for each in content["files"]:
            if found[each["name"]] != each["sha256"]:
                raise BadManifest("{}: its contents have changed (SHA-256)".format(each["name"]))
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
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        return "not of format {}".format(_FORMAT)
    if content.get("generation") != generation:
        return "of another generation"
    if not all(isinstance(content.get(name), str) for name in ("method", "tool")):
        return "method and tool must be strings"
    computed = content.get("computed")
    if not isinstance(computed, (int, float)) or isinstance(computed, bool) or not 0 <= computed < 1e12:
        return "computed must be a number of seconds"
    if content.get("block") != BLOCK or not isinstance(content.get("files"), list):
        return "files must be listed, hashed by blocks of {} bytes".format(BLOCK)
    seen: Set[str] = set()
    for each in content["files"]:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or not is_plain(each["name"]):
            return "a file's name must be plain and relative: {!r:.80}".format(each)
        if not isinstance(each.get("size"), int) or isinstance(each["size"], bool) or each["size"] < 0:
            return "{}: no size".format(each["name"])
        if not isinstance(each.get("sha256"), list):
            return "{}: no sha256".format(each["name"])
        if each["name"] in seen:
            return "{}: listed twice".format(each["name"])
        seen.add(each["name"])
    return ""


def is_plain(name: str) -> bool:
    """Whether a file's name is relative, inside the generation, and printable."""
    return name.isprintable() and all(part not in ("", ".", "..") for part in name.split("/")) and name != NAME


def _describe(directory: int, names: Sequence[str], sync: bool = True) -> List[Dict[str, Any]]:
    """Name, size and hashes of each file; with ``sync`` all are on disk when this returns."""
    # One more for fsync, which waits for the disk while the others hash.
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
                digests = list(pool.map(lambda start, source=descriptor: _digest(source, start), starts))
                if synced is not None:
                    synced.result()
            finally:
                os.close(descriptor)
            described.append({"name": name, "size": size, "sha256": digests})
    return described


def _digest(descriptor: int, start: int) -> str:
    digest, end = hashlib.sha256(), start + BLOCK
    while start < end:
        data = os.pread(descriptor, min(1 << 20, end - start), start)
        if not data:
            break
        digest.update(data)
        start += len(data)
    return digest.hexdigest()


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
