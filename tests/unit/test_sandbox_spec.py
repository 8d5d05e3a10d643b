"""What is asked of the engine for a spec, and which specs are refused before it is asked."""

from __future__ import annotations

import dataclasses
from pathlib import Path, PurePosixPath

import pytest

from sandboxes.docker_spec import (
    Creation,
    Image,
    StagedFiles,
    creation,
    environment,
    group_lines,
    lost_limits,
    overlay_options,
    passwd_lines,
)
from sandboxes.errors import SandboxRefused
from sandboxes.sandbox import BindMount, Limits, Mount, OverlayMount, Owner, SandboxSpec

SPEC = SandboxSpec(
    name="massgend-x",
    owner=Owner(instance="i", run="r", agent="a", generation=2),
    image="massgend/sandbox",
    uid=1000,
    gid=1000,
)
STAGED = StagedFiles(inside=Path("/s/inside"), passwd=Path("/s/passwd"), group=Path("/s/group"))
OVERLAY = OverlayMount(lower=Path("/l"), upper=Path("/u"), work=Path("/w"), target=PurePosixPath("/peers/red"))


def make(spec: SandboxSpec, *volumes: str) -> Creation:
    image = Image(image_id="sha256:1", path="/opt/venv/bin:/usr/bin", volumes=volumes)
    return creation(spec, image, STAGED, start_id="abc", socket=Path("/run/docker.sock"))


def host(made: Creation) -> dict[str, object]:
    config = made.body["HostConfig"]
    assert isinstance(config, dict)
    return config


def with_mount(mount: Mount) -> SandboxSpec:
    return dataclasses.replace(SPEC, mounts=(mount,))


def test_volumes_are_named_and_labelled_with_their_owner_and_start() -> None:
    mounts = host(make(with_mount(OVERLAY)))["Mounts"]
    assert isinstance(mounts, list)
    volume = mounts[-1]
    assert volume["Source"] == "massgend-i-r-a-2-abc-0"
    assert volume["VolumeOptions"]["Labels"] == {**SPEC.owner.labels(), "massgend.start": "abc"}
    assert volume["VolumeOptions"]["NoCopy"] is True
    assert volume["VolumeOptions"]["DriverConfig"]["Options"] == {
        "type": "overlay", "device": "overlay", "o": "rw,nosuid,nodev,lowerdir=/l,upperdir=/u,workdir=/w",
    }  # fmt: skip


def test_binds_bring_no_nested_mounts_and_no_propagation() -> None:
    mounts = host(make(with_mount(BindMount(source=Path("/x y,z"), target=PurePosixPath("/w"), read_only=True))))[
        "Mounts"
    ]
    assert isinstance(mounts, list)
    assert mounts[-1] == {
        "Type": "bind", "Source": "/x y,z", "Target": "/w", "ReadOnly": True,
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }  # fmt: skip


def test_an_images_volumes_become_small_tmpfs_unless_mounted_over() -> None:
    mounts = host(make(with_mount(BindMount(source=Path("/d"), target=PurePosixPath("/data"))), "/data", "/cache"))[
        "Mounts"
    ]
    assert isinstance(mounts, list)
    assert [mount["Target"] for mount in mounts if mount["Type"] == "tmpfs"] == ["/cache"]


def test_a_mounted_home_takes_the_place_of_the_tmpfs_one() -> None:
    assert "/home/agent" in host(make(SPEC))["Tmpfs"]  # type: ignore[operator]
    home = BindMount(source=Path("/h"), target=PurePosixPath("/home/agent"))
    assert "/home/agent" not in host(make(with_mount(home)))["Tmpfs"]  # type: ignore[operator]


def test_our_clients_come_first_on_the_images_path() -> None:
    assert "PATH=/opt/massgend/bin:/opt/venv/bin:/usr/bin" in environment({}, "/opt/venv/bin:/usr/bin")
    assert "PATH=/opt/massgend/bin:/mine" in environment({"PATH": "/mine"}, "/usr/bin")


@pytest.mark.parametrize(
    "spec",
    [
        dataclasses.replace(SPEC, uid=0),
        dataclasses.replace(SPEC, gid=0),
        dataclasses.replace(SPEC, uid=-1),
        dataclasses.replace(SPEC, name="../x"),
        dataclasses.replace(SPEC, name="a b"),
        dataclasses.replace(SPEC, limits=Limits(memory_bytes=0)),
        dataclasses.replace(SPEC, limits=Limits(pids=-1)),
        dataclasses.replace(SPEC, limits=Limits(cpus=0)),
        dataclasses.replace(SPEC, env={"A=B": "x"}),
        dataclasses.replace(SPEC, env={"A": "x\0"}),
        dataclasses.replace(SPEC, workdir=PurePosixPath("relative")),
        dataclasses.replace(SPEC, owner=dataclasses.replace(SPEC.owner, run="a/b"), mounts=(OVERLAY,)),
        dataclasses.replace(SPEC, mounts=(OVERLAY, OVERLAY)),
        *(
            with_mount(BindMount(source=Path("/x"), target=PurePosixPath(target)))
            for target in (
                "/",
                "/etc/passwd",
                "/opt/massgend",
                "/opt/massgend/bin",
                "/proc/x",
                "/dev",
                "/sys",
                "rel",
                "/a/../b",
            )
        ),
        *(
            with_mount(BindMount(source=Path(source), target=PurePosixPath("/x")))
            for source in ("/", "/run", "/run/docker.sock", "relative", "/a/../run")
        ),
    ],
)
def test_a_spec_that_would_weaken_the_sandbox_is_refused(spec: SandboxSpec) -> None:
    with pytest.raises(SandboxRefused):
        make(spec)


@pytest.mark.parametrize("path", ["/a,b", "/a:b", "/a\\b", '/a"b', "/a\nb", "relative", "/" + "x" * 4000])
def test_a_path_that_mount_options_cannot_hold_is_refused(path: str) -> None:
    with pytest.raises(SandboxRefused):
        overlay_options(dataclasses.replace(OVERLAY, lower=Path(path)))


def test_warnings_of_lost_limits_are_told_from_others() -> None:
    lost = (
        "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.",
        "Your kernel does not support swap limit capabilities or the cgroup is not mounted. "
        "Memory limited without swap.",
        "Your kernel does not support PIDs limit capabilities or the cgroup is not mounted. PIDs limit discarded.",
    )
    other = "The requested image's platform (linux/arm64) does not match the detected host platform (linux/amd64)"
    assert lost_limits((other, *lost)) == lost


@pytest.mark.parametrize("uid", [1000, 65534, 501])
def test_the_user_has_exactly_one_entry(uid: int) -> None:
    users = [line.split(":") for line in passwd_lines(uid, uid).splitlines()]
    assert [fields[0] for fields in users if fields[2] == str(uid)] == ["agent"]
    assert all(len(fields) == 7 for fields in users)
    groups = [line.split(":") for line in group_lines(uid).splitlines()]
    assert [fields[0] for fields in groups if fields[2] == str(uid)] == ["agent"]
