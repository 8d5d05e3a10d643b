"""Runs one program inside a sandbox; when the far side of our stdin goes away, ends all that the program started.

usage: supervisor.py [--grace SECONDS] [--stdin FILE] -- PROGRAM [ARGUMENT...]
       supervisor.py --sweep        (end what a killed supervisor left behind)
       supervisor.py --oom          (exit 1 when the kernel has killed something here for want of memory)
Standard library only, Python >= 3.8; must never print anything of its own to stdout.
"""

from __future__ import annotations

# ruff: noqa: SIM105 - contextlib would cost every program a few milliseconds of start-up
import ctypes
import os
import select
import signal
import sys
import time

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
READ_BYTES = 65536
MAX_PENDING_BYTES = 64 * 1024 * 1024
END_WITHIN_S = 10.0
USAGE_ERROR = 125
CANNOT_RUN = 126
NOT_FOUND = 127
URGENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PROGRAM_NICENESS = 10
PROGRAM_OOM_SCORE = 800


class Options:
    def __init__(self, argv: list[str]) -> None:
        self.grace_s = 2.0
        self.stdin_path: str | None = None
        words = list(argv)
        while words and words[0] != "--":
            flag = words.pop(0)
            if not words:
                raise ValueError(flag + " needs a value")
            if flag == "--grace":
                self.grace_s = float(words.pop(0))
            elif flag == "--stdin":
                self.stdin_path = words.pop(0)
            else:
                raise ValueError("unknown option " + flag)
        self.program = words[1:]
        if not self.program:
            raise ValueError("no program given after --")


class Kin:
    """Our descendants: adopts, reaps and ends them. Knows the exit status of the one program we were asked to run."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.status: int | None = None

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.status = status

    def end(self) -> None:
        end_by_time = time.monotonic() + END_WITHIN_S
        while time.monotonic() < end_by_time:
            self.reap()
            if not kill_all(lambda table: below(table, os.getpid())):
                self.reap()
                return
            time.sleep(0.002)


def processes() -> dict[int, tuple[int, str, int]]:
    """pid -> (parent, state, start time), as of one pass over /proc."""
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/" + name + "/stat", "rb") as stat:
                raw = stat.read()
        except OSError:
            continue
        fields = raw[raw.rindex(b")") + 2 :].split()
        table[int(name)] = (int(fields[1]), fields[0].decode(), int(fields[19]))
    return table


def below(table: dict[int, tuple[int, str, int]], root: int) -> set[int]:
    """The living descendants of `root`; zombies are followed (they may have children) but not named."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            if table[pid][1] not in "ZX":
                found.add(pid)
            todo.append(pid)
    return found


def kill_all(choose) -> int:  # type: ignore[no-untyped-def]  # Callable[[table], set[int]]: typing is slow to import
    """Stop, then kill, what `choose` picks; how many there were.

    Stopped first: a fork bomb whose members are killed one by one refills its places as fast as we empty them, while
    stopped members keep their places within the pids limit until none is left to fork.
    """
    stopped: set[int] = set()
    while True:
        fresh = choose(processes()) - stopped
        if not fresh:
            break
        for pid in fresh:
            send_signal(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in stopped:
        send_signal(pid, signal.SIGKILL)
    return len(stopped)


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def orphans(table: dict[int, tuple[int, str, int]]) -> set[int]:
    """What hangs below PID 1 but for its first child, which keeps the container alive.

    Programs that are still supervised hang below a process that the engine put here (parent 0), never below PID 1.
    """
    first = min((row[2], pid) for pid, row in table.items() if row[0] == 1)[1]
    return below(table, 1) - {first}


def sweep() -> int:
    end_by_time = time.monotonic() + END_WITHIN_S
    while time.monotonic() < end_by_time:
        if not kill_all(orphans):
            return 0
        time.sleep(0.002)
    return 1


def memory_kills() -> int:
    """How often the kernel killed something in our memory group (cgroup v2, then v1)."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path) as events:
                for line in events:
                    name, _, count = line.partition(" ")
                    if name == "oom_kill":
                        return int(count)
        except OSError:
            continue
    return 0


def initial_environ() -> dict[bytes, bytes]:
    """The environment as the engine gave it; Python itself may have added LC_CTYPE to ours."""
    with open("/proc/self/environ", "rb") as block:
        pairs = [entry.partition(b"=") for entry in block.read().split(b"\0")]
    return {name: text for name, sign, text in pairs if sign}


def listen_for_signals(urgent: list[int]) -> int:
    """Ignore every signal that a child could end us with; the returned fd wakes the loop for the ones we heed."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in signal.valid_signals():
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in URGENT:
        signal.signal(number, lambda *_: urgent.append(1))
    return wake_read


def spawn(options: Options, environ: dict[bytes, bytes], libc: ctypes.CDLL) -> tuple[int, int | None]:
    """Start the program in a session of its own; its pid and, unless it reads a file, the fd of its stdin."""
    if options.stdin_path is None:
        child_stdin, relay_fd = os.pipe()
    else:
        child_stdin, relay_fd = os.open(options.stdin_path, os.O_RDONLY | os.O_CLOEXEC), None
    pid = os.fork()
    if pid == 0:
        become(options.program, environ, child_stdin, libc)
    os.close(child_stdin)
    if relay_fd is not None:
        os.set_blocking(relay_fd, False)
    return pid, relay_fd


def become(program: list[str], environ: dict[bytes, bytes], stdin_fd: int, libc: ctypes.CDLL) -> None:
    """In the child: turn into the program. Never returns."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue
    os.setsid()
    os.dup2(stdin_fd, 0)
    prefer_supervisor(libc)
    try:
        os.execvpe(program[0], program, environ)  # noqa: S606 - that is the job
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)


def prefer_supervisor(libc: ctypes.CDLL) -> None:
    """When CPU or memory is short the program yields, not its supervisor, which must be able to end it."""
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    try:
        os.nice(PROGRAM_NICENESS)
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write(str(PROGRAM_OOM_SCORE))
    except OSError:
        pass


class Relay:
    """Carries our stdin to the program's and watches it as a life line. Holds at most MAX_PENDING_BYTES."""

    def __init__(self, relay_fd: int | None) -> None:
        self.relay_fd = relay_fd
        self.pending = bytearray()
        self.far_side_gone = False
        self.at_eof = False

    def watch(self, poll: select.poll) -> None:
        """Say what to wait for. A full buffer still lets us see a hang-up, which poll reports unasked."""
        full = len(self.pending) >= MAX_PENDING_BYTES
        if self.at_eof or (full and self.far_side_gone):
            forget(poll, 0)
        else:
            poll.register(0, 0 if full else select.POLLIN)
        if self.relay_fd is not None:
            poll.register(self.relay_fd, select.POLLOUT if self.pending else 0)

    def take(self, events: int) -> None:
        if events & select.POLLIN:
            try:
                content = os.read(0, READ_BYTES)
            except OSError:
                content = b""
            if content and self.relay_fd is not None:
                self.pending += content
            if not content:
                self.at_eof = self.far_side_gone = True
        elif events:
            self.far_side_gone = True
            self.at_eof = len(self.pending) < MAX_PENDING_BYTES

    def give(self, poll: select.poll, events: int) -> None:
        if self.relay_fd is None:
            return
        try:
            if events & select.POLLERR:
                raise BrokenPipeError
            if self.pending:
                del self.pending[: os.write(self.relay_fd, self.pending[:READ_BYTES])]
        except BlockingIOError:
            return
        except OSError:
            self.close(poll)
            return
        if self.at_eof and not self.pending:
            self.close(poll)

    def close(self, poll: select.poll) -> None:
        """The program has closed its stdin, or has had all of it."""
        if self.relay_fd is not None:
            forget(poll, self.relay_fd)
            os.close(self.relay_fd)
        self.relay_fd = None
        self.pending.clear()


def forget(poll: select.poll, fd: int) -> None:
    try:
        poll.unregister(fd)
    except KeyError:
        pass


def supervise(kin: Kin, relay: Relay, wake_fd: int, urgent: list[int], grace_s: float) -> None:
    """Return when the program has ended, or when it is time to end it."""
    poll = select.poll()
    poll.register(wake_fd, select.POLLIN)
    end_at: float | None = None
    while True:
        kin.reap()
        if kin.status is not None or urgent:
            return
        if relay.far_side_gone and end_at is None:
            end_at = time.monotonic() + grace_s
        if end_at is not None and time.monotonic() >= end_at:
            return
        if relay.at_eof and not relay.pending:
            relay.close(poll)
        relay.watch(poll)
        left_ms = None if end_at is None else max(1, int((end_at - time.monotonic()) * 1000))
        for fd, events in poll.poll(left_ms):
            if fd == wake_fd:
                os.read(wake_fd, READ_BYTES)
            elif fd == 0:
                relay.take(events)
            else:
                relay.give(poll, events)


def exit_code(status: int | None) -> int:
    if status is None:
        return 128 + signal.SIGKILL
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def main(argv: list[str]) -> int:
    if argv == ["--sweep"]:
        return sweep()
    if argv == ["--oom"]:
        return 1 if memory_kills() else 0
    try:
        options = Options(argv)
    except ValueError as error:
        sys.stderr.write(f"supervisor: {error}\n")
        return USAGE_ERROR
    environ = initial_environ()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # processes of our own uid must not ptrace us
    urgent: list[int] = []
    wake_fd = listen_for_signals(urgent)
    try:
        child, relay_fd = spawn(options, environ, libc)
    except OSError as error:
        sys.stderr.write(f"cannot start {options.program[0]}: {error}\n")
        return CANNOT_RUN
    kin = Kin(child)
    supervise(kin, Relay(relay_fd), wake_fd, urgent, options.grace_s)
    kin.end()
    return exit_code(kin.status)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    os._exit(code)
