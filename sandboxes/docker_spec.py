"""PURE: from a SandboxSpec to the arguments of the Docker API's "create a container". No I/O, no Docker SDK.

All hardening is decided here and nowhere else, so that it can be read, and tested, in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandboxes.errors import SandboxRefused
from sandboxes.sandbox import BindMount, Mount, OverlayMount, SandboxSpec

INSIDE = PurePosixPath("/opt/massgend")
HOME = PurePosixPath("/home/agent")
USER = "agent"
NOBODY = 65_534
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_LABEL = "massgend.start"
IDLE_ARGV = ("sleep", "2147483647")

SMALL_TMPFS_BYTES = 16 * 1024**2
SHM_BYTES = 64 * 1024**2
# An OOM of the host must take a sandbox, not the daemon.
OOM_SCORE = 300
# mount(2) takes one page of options.
MAX_OVERLAY_OPTIONS_BYTES = 4_000

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,200}")
_OWN_TARGETS = ("/", "/etc", "/etc/passwd", "/etc/group", "/usr", "/bin", "/lib", "/sbin")
_OWN_FOLDERS = (INSIDE, PurePosixPath("/proc"), PurePosixPath("/sys"), PurePosixPath("/dev"))
_OVERLAY_SPECIAL = re.compile(r"[,:\\\"\x00-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class Image:
    """What the engine says of an image: its id, its PATH, and the folders it declares as volumes."""

    image_id: str
    path: str
    volumes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StagedFiles:
    """Host paths of what every sandbox gets read-only: our inside files, and a passwd and group file for its uid."""

    inside: Path
    passwd: Path
    group: Path


@dataclass(frozen=True, kw_only=True)
class Creation:
    """One container to create: its name, the API's body, and how to find again whatever came of it."""

    name: str
    body: Mapping[str, object]
    start_label: str


def creation(
    spec: SandboxSpec,
    image: Image,
    staged: StagedFiles,
    *,
    start_id: str,
    socket: Path,
    argv: Sequence[str] = IDLE_ARGV,
    labels: Mapping[str, str] | None = None,
) -> Creation:
    """`argv` is PID 1's one child; `labels` take the place of the owner's.

    Raises SandboxRefused, with the reason, for a spec that we do not want to ask the engine for.
    """
    _check(spec, socket)
    labels = {**(spec.owner.labels() if labels is None else labels), START_LABEL: start_id}
    body: dict[str, object] = {
        "Image": image.image_id,
        "User": f"{spec.uid}:{spec.gid}",
        "Entrypoint": list(argv[:1]),
        "Cmd": list(argv[1:]),
        "WorkingDir": str(spec.workdir),
        "Env": environment(spec.env, image.path),
        "Labels": labels,
        "Hostname": "sandbox",
        "Healthcheck": {"Test": ["NONE"]},
        "NetworkDisabled": True,
        "StopSignal": "SIGKILL",
        "HostConfig": _host_config(spec, image, staged, labels, start_id),
    }
    return Creation(name=spec.name, body=body, start_label=f"{START_LABEL}={start_id}")


def environment(env: Mapping[str, str], image_path: str) -> list[str]:
    """NAME=value pairs; our two clients come first on PATH."""
    own = {"HOME": str(HOME), "USER": USER, "LOGNAME": USER, **env}
    own["PATH"] = f"{INSIDE}/bin:{env.get('PATH', image_path)}"
    return [f"{name}={text}" for name, text in own.items()]


def passwd_lines(uid: int, gid: int) -> str:
    entries = {
        0: "root:x:0:0:root:/root:/bin/sh",
        NOBODY: f"nobody:x:{NOBODY}:{NOBODY}:nobody:/nonexistent:/bin/false",
        uid: f"{USER}:x:{uid}:{gid}:{USER}:{HOME}:/bin/bash",
    }
    return "".join(line + "\n" for line in entries.values())


def group_lines(gid: int) -> str:
    entries = {0: "root:x:0:", NOBODY: f"nogroup:x:{NOBODY}:", gid: f"{USER}:x:{gid}:"}
    return "".join(line + "\n" for line in entries.values())


def lost_limits(warnings: Sequence[str]) -> tuple[str, ...]:
    """The engine's warnings that mean: a limit you asked for will not hold."""
    signs = ("discarded", "does not support", "limited without", "not supported", "cgroup is not mounted")
    return tuple(text for text in warnings if any(sign in text.lower() for sign in signs))


def _host_config(
    spec: SandboxSpec, image: Image, staged: StagedFiles, labels: Mapping[str, str], start_id: str
) -> dict[str, object]:
    limits = spec.limits
    mounts = [*_own_mounts(staged), *(_mount(mount, spec, labels, start_id, n) for n, mount in enumerate(spec.mounts))]
    taken = [mount.target for mount in spec.mounts]
    mounts += [_tmpfs_over(folder) for folder in image.volumes if PurePosixPath(folder) not in taken]
    config: dict[str, object] = {
        "NetworkMode": "none",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true"],
        "Privileged": False,
        "ReadonlyRootfs": True,
        "Init": True,
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        "NanoCpus": int(limits.cpus * 1_000_000_000),
        "PidsLimit": limits.pids,
        "OomScoreAdj": OOM_SCORE,
        "ShmSize": SHM_BYTES,
        "Tmpfs": _tmpfs(spec),
        "Mounts": mounts,
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
        "Dns": ["127.0.0.1"],
        "DnsSearch": ["."],
    }
    if spec.runtime is not None:
        config["Runtime"] = spec.runtime
    return config


def _tmpfs(spec: SandboxSpec) -> dict[str, str]:
    folders = {
        "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={spec.limits.tmp_bytes}",  # noqa: S108 - inside the sandbox
        "/var/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={SMALL_TMPFS_BYTES}",  # noqa: S108 - inside the sandbox
        "/run": f"rw,noexec,nosuid,nodev,mode=1777,size={SMALL_TMPFS_BYTES}",
        str(HOME): f"rw,exec,nosuid,nodev,mode=0700,uid={spec.uid},gid={spec.gid},size={spec.limits.tmp_bytes}",
    }
    taken = {str(mount.target) for mount in spec.mounts}
    return {folder: options for folder, options in folders.items() if folder not in taken}


def _own_mounts(staged: StagedFiles) -> list[dict[str, object]]:
    pairs = ((staged.inside, str(INSIDE)), (staged.passwd, "/etc/passwd"), (staged.group, "/etc/group"))
    return [_bind(source, target, read_only=True) for source, target in pairs]


def _mount(mount: Mount, spec: SandboxSpec, labels: Mapping[str, str], start_id: str, number: int) -> dict[str, object]:
    if isinstance(mount, BindMount):
        return _bind(mount.source, str(mount.target), read_only=mount.read_only)
    owner = spec.owner
    name = f"massgend-{owner.instance}-{owner.run}-{owner.agent}-{owner.generation}-{start_id}-{number}"
    if not _NAME.fullmatch(name):
        raise SandboxRefused(f"sandbox {spec.name}: {name!r} cannot be the name of a volume")
    driver = {"type": "overlay", "device": "overlay", "o": overlay_options(mount)}
    return {
        "Type": "volume",
        "Source": name,
        "Target": str(mount.target),
        "ReadOnly": mount.read_only,
        "VolumeOptions": {
            "NoCopy": True,
            "Labels": dict(labels),
            "DriverConfig": {"Name": "local", "Options": driver},
        },
    }


def overlay_options(mount: OverlayMount) -> str:
    """Options of the overlay file system; nosuid and nodev, because the tree was written by an agent."""
    for path in (mount.lower, mount.upper, mount.work):
        if not path.is_absolute() or _OVERLAY_SPECIAL.search(str(path)):
            raise SandboxRefused(
                f'{str(path)!r} cannot be part of an overlay: it must be absolute, without , : \\ " or control'
                " characters; move the state folder to a plainer path"
            )
    access = "ro" if mount.read_only else "rw"
    options = f"{access},nosuid,nodev,lowerdir={mount.lower},upperdir={mount.upper},workdir={mount.work}"
    if len(options.encode()) > MAX_OVERLAY_OPTIONS_BYTES:
        raise SandboxRefused(f"the paths of the overlay for {mount.target} are too long: use a shorter state folder")
    return options


def _bind(source: Path, target: str, *, read_only: bool) -> dict[str, object]:
    return {
        "Type": "bind",
        "Source": str(source),
        "Target": target,
        "ReadOnly": read_only,
        # Private and not recursive: what is mounted below the source, now or later, does not come along.
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _tmpfs_over(folder: str) -> dict[str, object]:
    """An image's VOLUME would be an unlimited, unlabelled folder on the host's disk; it becomes a small tmpfs."""
    return {"Type": "tmpfs", "Target": folder, "TmpfsOptions": {"SizeBytes": SMALL_TMPFS_BYTES, "Mode": 0o1777}}


def _check(spec: SandboxSpec, socket: Path) -> None:
    reasons = [*_bad_fields(spec), *_bad_mounts(spec.mounts, socket)]
    if reasons:
        raise SandboxRefused(f"sandbox {spec.name}: {reasons[0]}")


def _bad_fields(spec: SandboxSpec) -> Iterable[str]:
    if not _NAME.fullmatch(spec.name):
        yield "its name must be letters, digits, '.', '_' and '-'"
    if spec.uid <= 0 or spec.gid <= 0:
        yield f"it would run as {spec.uid}:{spec.gid}; a sandbox never runs as root, use a uid and gid above 0"
    limits = spec.limits
    if min(limits.memory_bytes, limits.pids, limits.tmp_bytes) <= 0 or limits.cpus <= 0:
        yield "every limit must be above 0"
    if any(not name or "=" in name or "\0" in name + text for name, text in spec.env.items()):
        yield "a name in its environment is empty or holds '=', or something holds a NUL"
    if not spec.workdir.is_absolute():
        yield f"the working folder {spec.workdir} is not absolute"


def _bad_mounts(mounts: Sequence[Mount], socket: Path) -> Iterable[str]:
    targets = [mount.target for mount in mounts]
    for target in targets:
        if not target.is_absolute() or ".." in target.parts:
            yield f"the mount target {target} is not a plain absolute path"
        if str(target) in _OWN_TARGETS or any(target.is_relative_to(folder) for folder in _OWN_FOLDERS):
            yield f"nothing can be mounted at {target}"
        if targets.count(target) > 1:
            yield f"two mounts want {target}"
    for mount in mounts:
        for source in (mount.source,) if isinstance(mount, BindMount) else (mount.lower, mount.upper, mount.work):
            if not source.is_absolute() or ".." in source.parts:
                yield f"the mount source {source} is not a plain absolute path"
            if socket.is_relative_to(source):
                yield f"mounting {source} would hand the Docker socket to the sandbox"
