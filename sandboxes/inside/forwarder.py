"""Gives one program a TCP way to the gateway's socket, and names it in the usual proxy variables.

usage: forwarder.py [--port PORT] -- PROGRAM [ARGUMENT...]
Listens on 127.0.0.1:PORT (default 3128; 0: any) for as long as the program runs; then ends with its exit code. The
port is in $MASSGEND_PORT. Standard library only, Python >= 3.8; must never print anything of its own to stdout.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import threading

SOCKET_PATH = os.environ.get("MASSGEND_SOCKET", "/run/gateway/s.sock")
TOKEN_PATH = os.environ.get("MASSGEND_TOKEN_FILE", "/run/gateway/token")
DEFAULT_PORT = 3128
PIECE_BYTES = 64 * 1024
MAX_PENDING_BYTES = 256 * 1024
NO_PROXY = "localhost,127.0.0.1,::1,gateway"
USAGE_ERROR = 125
CANNOT_RUN = 126
NOT_FOUND = 127


class Side:
    """One end of a pair: what still has to be written to it, and whether its peer has said all."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.other: Side = self
        self.pending = bytearray()
        self.peer_ended = False
        self.read_ended = False
        self.write_ended = False

    def fileno(self) -> int:
        return self.connection.fileno()


class Forwarder:
    """Pairs each TCP connection with one to the socket. One thread, no buffering beyond what the far side lags."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ)

    def serve(self) -> None:
        while True:
            for key, events in self.selector.select():
                if key.fileobj is self.listener:
                    self.accept()
                    continue
                side = key.fileobj
                assert isinstance(side, Side)
                if side.fileno() < 0:  # its pair was closed a moment ago
                    continue
                try:
                    if events & selectors.EVENT_READ:
                        self.read(side)
                    if events & selectors.EVENT_WRITE and side.fileno() >= 0:
                        self.write(side)
                except OSError:
                    self.close(side)

    def accept(self) -> None:
        try:
            near, _ = self.listener.accept()
        except OSError:
            return
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            far.connect(SOCKET_PATH)
        except OSError:
            near.close()
            far.close()
            return
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sides = Side(near), Side(far)
        sides[0].other, sides[1].other = sides[1], sides[0]
        for side in sides:
            side.connection.setblocking(False)
            self.selector.register(side, selectors.EVENT_READ)

    def read(self, side: Side) -> None:
        try:
            piece = side.connection.recv(PIECE_BYTES)
        except BlockingIOError:
            return
        if piece:
            side.other.pending += piece
        else:
            side.read_ended = True
            side.other.peer_ended = True
        self.write(side.other)

    def write(self, side: Side) -> None:
        if side.pending:
            try:
                sent = side.connection.send(side.pending)
            except BlockingIOError:
                sent = 0
            del side.pending[:sent]
        if not side.pending and side.peer_ended and not side.write_ended:
            side.write_ended = True
            side.connection.shutdown(socket.SHUT_WR)
        if side.write_ended and side.other.write_ended:
            self.close(side)
            return
        self.watch(side)
        self.watch(side.other)

    def watch(self, side: Side) -> None:
        events = selectors.EVENT_WRITE if side.pending else 0
        if not side.read_ended and len(side.other.pending) < MAX_PENDING_BYTES:
            events |= selectors.EVENT_READ
        known = self.selector.get_map().get(side)
        if known is None:
            if events:
                self.selector.register(side, events)
        elif not events:
            self.selector.unregister(side)
        elif known.events != events:
            self.selector.modify(side, events)

    def close(self, side: Side) -> None:
        for one in (side, side.other):
            if one.fileno() < 0:
                continue
            if self.selector.get_map().get(one) is not None:
                self.selector.unregister(one)
            one.connection.close()


def environment(port: int) -> dict[str, str]:
    """For the program: who speaks on the proxy is known by the turn's token."""
    with open(TOKEN_PATH, encoding="ascii") as file:
        token = file.read().strip()
    proxy = f"http://massgend:{token}@127.0.0.1:{port}"
    named = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": NO_PROXY}
    return {**os.environ, **named, **{name.lower(): value for name, value in named.items()}, "MASSGEND_PORT": str(port)}


def listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def run(program: list[str], env: dict[str, str]) -> int:
    try:
        child = subprocess.Popen(program, env=env)
    except FileNotFoundError:
        sys.stderr.write(f"{program[0]}: not found\n")
        return NOT_FOUND
    except OSError as error:
        sys.stderr.write(f"{program[0]}: {error.strerror}\n")
        return CANNOT_RUN
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: child.send_signal(received))
    code = child.wait()
    return 128 - code if code < 0 else code


def main(words: list[str]) -> int:
    port = DEFAULT_PORT
    if words[:1] == ["--port"] and len(words) > 1 and words[1].isdigit():
        port = int(words[1])
        words = words[2:]
    if words[:1] != ["--"] or len(words) < 2:
        sys.stderr.write("usage: forwarder.py [--port PORT] -- PROGRAM [ARGUMENT...]\n")
        return USAGE_ERROR
    try:
        listener = listen(port)
        env = environment(listener.getsockname()[1])
    except OSError as error:
        sys.stderr.write(f"the way to the gateway cannot be opened: {error.strerror}\n")
        return USAGE_ERROR
    threading.Thread(target=Forwarder(listener).serve, daemon=True).start()
    return run(words[1:], env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
