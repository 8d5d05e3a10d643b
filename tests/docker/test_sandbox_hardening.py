"""Attacks from inside a sandbox: each promise of docs/security.md 1 and 2 that the sandbox alone keeps."""

from __future__ import annotations

import dataclasses
import json
import socket
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import docker
import pytest

from sandboxes.docker_provider import DockerProvider
from sandboxes.errors import SandboxRefused
from sandboxes.sandbox import BindMount, Limits, OverlayMount, Sandbox
from tests.support.sandbox_engine import UID, bash, endpoint, make_folder, make_spec, run_to_end

pytestmark = [pytest.mark.anyio, pytest.mark.docker]


SHELL = Path("/bin/sh").resolve()


async def python(sandbox: Sandbox, source: str) -> str:
    ended = await run_to_end(sandbox, "python3", "-c", textwrap.dedent(source))
    assert ended.code == 0, ended.stderr
    return ended.stdout.strip()


# --- network


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("SOCK_STREAM", ("169.254.169.254", 80)),
        ("SOCK_STREAM", ("8.8.8.8", 53)),
        ("SOCK_STREAM", ("172.17.0.1", 2375)),
        ("SOCK_DGRAM", ("8.8.8.8", 53)),
        ("SOCK_DGRAM", ("255.255.255.255", 9)),
        ("SOCK_STREAM", ("2001:4860:4860::8888", 53)),
        ("SOCK_DGRAM", ("ff05::1", 9)),
    ],
)
async def test_no_address_can_be_reached(sandbox: Sandbox, kind: str, address: tuple[str, int]) -> None:
    family = "AF_INET6" if ":" in address[0] else "AF_INET"
    said = await python(
        sandbox,
        f"""
        import socket
        s = socket.socket(socket.{family}, socket.{kind})
        s.settimeout(3)
        try:
            s.connect({address!r}); s.send(b"x"); print("reached")
        except OSError as error:
            print(error.strerror)
        """,
    )
    assert said in ("Network is unreachable", "Cannot assign requested address", "Permission denied")


async def test_there_is_no_interface_but_loopback_and_no_name_service(sandbox: Sandbox) -> None:
    said = await python(
        sandbox,
        """
        import socket
        print(sorted(name for _, name in socket.if_nameindex()))
        try:
            print(socket.getaddrinfo("example.com", 80))
        except OSError as error:
            print(type(error).__name__)
        """,
    )
    interfaces, names = said.split("\n")
    # Tunnel devices that the kernel puts in every network namespace are down and cannot be set up without rights.
    assert "lo" in interfaces
    assert "eth" not in interfaces
    assert names == "gaierror"


async def test_no_raw_or_packet_socket_can_be_opened(sandbox: Sandbox) -> None:
    said = await python(
        sandbox,
        """
        import socket
        for family, kind in ((socket.AF_PACKET, socket.SOCK_RAW), (socket.AF_INET, socket.SOCK_RAW)):
            try:
                socket.socket(family, kind, 1); print("opened")
            except OSError as error:
                print(error.strerror)
        """,
    )
    assert said.split("\n") == ["Operation not permitted"] * 2


@pytest.fixture
def abstract_socket() -> Iterator[str]:
    """A listener of the host's in the abstract namespace, which no file permission guards."""
    name = "massgend-test-abstract"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        yield name


async def test_the_hosts_abstract_sockets_are_out_of_reach(sandbox: Sandbox, abstract_socket: str) -> None:
    said = await python(
        sandbox,
        f"""
        import socket
        try:
            socket.socket(socket.AF_UNIX).connect("\\0{abstract_socket}"); print("reached")
        except OSError as error:
            print(error.strerror)
        """,
    )
    assert said == "Connection refused"


# --- rights


async def test_programs_have_no_rights_and_cannot_gain_any(sandbox: Sandbox) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in (await bash(sandbox, "cat /proc/self/status")).stdout.splitlines()
        if ":\t" in line
    )
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert set(status["Uid"].split()) == {str(UID)}
    assert "0" not in status["Groups"].split()


async def test_a_setuid_root_program_gives_nothing(sandbox: Sandbox, folder: Path) -> None:
    if UID == 1000:  # the tests run as root, so that they can plant one
        shell = folder / "workspace" / "shell"
        shell.write_bytes(SHELL.read_bytes())
        shell.chmod(0o4755)
        assert (await bash(sandbox, "/workspace/shell -p -c 'id -u; id -ru'")).stdout == f"{UID}\n{UID}\n"
    found = (await bash(sandbox, "find /usr /bin -perm -4000 -type f 2>/dev/null")).stdout.split()
    for program in found:
        await bash(sandbox, f"timeout 2 {program} </dev/null")
    assert (await bash(sandbox, "su -c id 2>&1 </dev/null")).code != 0


@pytest.mark.parametrize(
    "attack",
    [
        "mount -t tmpfs none /mnt",
        "unshare --mount true",
        "unshare --user --map-root-user true",
        "chroot / true",
        "mknod /tmp/sda b 8 0",
        "dmesg",
        "date -s 2001-01-01",
        "hostname other",
        "nice -n -5 true | grep . || renice -n -5 $$",
        "echo 1 > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "echo 1 > /sys/kernel/uevent_helper",
        "echo -900 > /proc/self/oom_score_adj",
        "cat /proc/kcore",
    ],
)
async def test_the_kernel_says_no_to(sandbox: Sandbox, attack: str) -> None:
    assert (await bash(sandbox, attack)).code != 0


async def test_the_root_file_system_cannot_be_written(sandbox: Sandbox) -> None:
    folders = "/ /etc /usr/bin /opt/massgend /opt/massgend/bin /root /var/lib /lib /run"
    script = f"for d in {folders}; do touch $d/x 2>/dev/null && echo $d; done"
    assert (await bash(sandbox, script)).stdout == ""
    for own in ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf", "/opt/massgend/supervisor.py"):
        assert (await bash(sandbox, f"echo x >> {own}")).code != 0


async def test_the_user_has_a_name_a_home_and_our_clients_on_path(sandbox: Sandbox) -> None:
    script = "whoami; echo ~; touch ~/x && command -v massgend-answer; getent passwd | wc -l; id -gn"
    assert (await bash(sandbox, script)).stdout.split() == [
        "agent", "/home/agent", "/opt/massgend/bin/massgend-answer", "3", "agent",
    ]  # fmt: skip


async def test_what_is_mounted_is_ours_and_nothing_else(provider: DockerProvider, instance: str, folder: Path) -> None:
    spec = make_spec(instance, folder)
    sandbox = await provider.start(spec)
    mounts = [line.split() for line in (await bash(sandbox, "cat /proc/self/mounts")).stdout.splitlines()]
    from_disk = {
        target
        for source, target, kind, *_ in mounts
        if kind not in ("tmpfs", "proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2")
    }
    assert from_disk <= {
        "/", "/workspace", "/opt/massgend", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname",
        "/etc/resolv.conf", "/sbin/docker-init", "/usr/sbin/docker-init",
    }  # fmt: skip
    options = {target: words.split(",") for _, target, _, words, *_ in mounts}
    for target in ("/tmp", "/var/tmp", "/run", "/home/agent", "/dev/shm"):
        assert {"nosuid", "nodev"} <= set(options[target]), target
        assert any(word.startswith("size=") for word in options[target]), target
    assert (
        await bash(sandbox, "find / -xdev -type s 2>/dev/null; ls /var/run/docker.sock /run/docker.sock 2>/dev/null")
    ).stdout == ""


async def test_an_overlay_is_mounted_nosuid_nodev(provider: DockerProvider, instance: str, folder: Path) -> None:
    folders = {name: make_folder(folder / "odd ( name" / name) for name in ("lower", "upper", "work")}
    overlay = OverlayMount(**folders, target=PurePosixPath("/peers/red"))
    sandbox = await provider.start(make_spec(instance, folder, overlay))
    line = (await bash(sandbox, "grep ' /peers/red ' /proc/self/mounts")).stdout
    assert {"rw", "nosuid", "nodev"} <= set(line.split()[3].split(","))


async def test_read_only_mounts_cannot_be_written(provider: DockerProvider, instance: str, folder: Path) -> None:
    plain = BindMount(source=make_folder(folder / "ro"), target=PurePosixPath("/ro"), read_only=True)
    folders = {name: make_folder(folder / name) for name in ("lower", "upper", "work")}
    overlay = OverlayMount(**folders, target=PurePosixPath("/peers/red"), read_only=True)
    sandbox = await provider.start(make_spec(instance, folder, plain, overlay))
    assert (await bash(sandbox, "touch /ro/x")).code != 0
    assert (await bash(sandbox, "touch /peers/red/x")).code != 0


# --- limits


FORK_BOMB = "bomb() { bomb | bomb & bomb; }; bomb"


async def test_a_fork_bomb_stays_within_its_limit_and_can_be_ended(
    provider: DockerProvider, instance: str, folder: Path
) -> None:
    sandbox = await provider.start(make_spec(instance, folder, limits=Limits(pids=200)))
    begun = time.monotonic()
    async with sandbox.run(
        ["bash", "-c", f"({FORK_BOMB}) 2>/dev/null & echo started; sleep 2; echo alive"], grace_s=0.5
    ) as process:
        client = docker.APIClient(base_url=endpoint())
        try:
            async for chunk in process.output():
                if b"started" in chunk.content:
                    break
            stats = client.stats(sandbox.name, stream=False)
        finally:
            client.close()
        assert stats["pids_stats"]["current"] <= 200
    assert time.monotonic() - begun < 15
    state = await sandbox.describe()
    assert not state.out_of_memory
    # Whether the bomb was defused by the supervisor or the sandbox had to be stopped: nothing of it is left.
    if state.running:
        count = await bash(sandbox, "ls -d /proc/[0-9]* | wc -l")
        assert int(count.stdout) < 12


async def test_memory_beyond_the_limit_kills_and_is_told(provider: DockerProvider, instance: str, folder: Path) -> None:
    sandbox = await provider.start(make_spec(instance, folder, limits=Limits(memory_bytes=128 * 1024**2)))
    assert not (await sandbox.describe()).out_of_memory
    ended = await run_to_end(sandbox, "python3", "-c", "x = bytearray(512 * 1024**2); print(len(x))")
    assert ended.code == 137
    state = await sandbox.describe()
    assert state.running
    assert state.out_of_memory
    await sandbox.stop()
    assert (await sandbox.describe()).out_of_memory


async def test_filling_tmp_stops_at_its_limit(provider: DockerProvider, instance: str, folder: Path) -> None:
    sandbox = await provider.start(make_spec(instance, folder, limits=Limits(tmp_bytes=8 * 1024**2)))
    ended = await bash(
        sandbox, "head -c 20000000 /dev/zero > /tmp/x; stat -c %s /tmp/x; cp /bin/true /tmp/t && /tmp/t && echo runs"
    )
    assert "No space left" in ended.stderr
    size, runs = (
        await bash(sandbox, "stat -c %s /tmp/x; rm /tmp/x; cp /bin/true /tmp/t && /tmp/t && echo runs")
    ).stdout.split()
    assert int(size) <= 8 * 1024**2
    assert runs == "runs"


async def test_the_engine_was_asked_for_every_limit(provider: DockerProvider, instance: str, folder: Path) -> None:
    limits = Limits(memory_bytes=300 * 1024**2, cpus=0.5, pids=77)
    sandbox = await provider.start(make_spec(instance, folder, limits=limits))
    client = docker.APIClient(base_url=endpoint())
    try:
        found = client.inspect_container(sandbox.name)
    finally:
        client.close()
    host = found["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (
        limits.memory_bytes, limits.memory_bytes, 500_000_000, 77,
    )  # fmt: skip
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] is None
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"] is True
    assert host["Init"] is True
    assert host["Privileged"] is False
    assert host["LogConfig"]["Type"] == "none"
    assert host["RestartPolicy"]["Name"] in ("", "no")
    assert host["IpcMode"] == "private"
    assert json.dumps(found).count("docker.sock") == 0


# --- refusals


@pytest.mark.parametrize("source", [Path("/"), None])
async def test_the_docker_socket_is_never_mounted(
    provider: DockerProvider, instance: str, folder: Path, source: Path | None
) -> None:
    place = source or Path(endpoint().removeprefix("unix://"))
    with pytest.raises(SandboxRefused, match="Docker socket"):
        await provider.start(make_spec(instance, folder, BindMount(source=place, target=PurePosixPath("/x"))))


async def test_an_unknown_runtime_is_refused_and_nothing_falls_back(
    provider: DockerProvider, instance: str, folder: Path
) -> None:
    with pytest.raises(SandboxRefused, match="no-such-runtime"):
        await provider.start(make_spec(instance, folder, runtime="no-such-runtime"))
    assert await provider.list_ours(instance) == ()


async def test_an_overlay_on_a_path_that_mount_cannot_take_is_refused(
    provider: DockerProvider, instance: str, folder: Path
) -> None:
    folders = {name: make_folder(folder / "a,b" / name) for name in ("lower", "upper", "work")}
    spec = make_spec(instance, folder, OverlayMount(**folders, target=PurePosixPath("/peers/red")))
    with pytest.raises(SandboxRefused, match="plainer path"):
        await provider.start(spec)
    missing = dataclasses.replace(
        spec,
        mounts=(
            OverlayMount(lower=folder / "no", upper=folder / "no", work=folder / "no", target=PurePosixPath("/p")),
        ),
    )
    with pytest.raises(SandboxRefused):
        await provider.start(missing)
    assert await provider.list_ours(instance) == ()


@pytest.mark.parametrize("uid", [4321, 65534])
async def test_any_uid_has_a_name_and_a_home_of_its_own(
    provider: DockerProvider, instance: str, folder: Path, uid: int
) -> None:
    sandbox = await provider.start(make_spec(instance, folder, uid=uid, gid=uid))
    known = "python3 -c 'import pwd, os; pwd.getpwuid(os.getuid())'"
    said = await bash(sandbox, f"whoami; id -u; id -g; cd; pwd; touch here && {known}")
    assert said.stdout.split() == ["agent", str(uid), str(uid), "/home/agent"]
    assert said.code == 0
