"""Docker's frames come back as they were sent, however the connection cuts them."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.exec_stream import FrameDecoder
from sandboxes.sandbox import Stream

FRAMES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=300)), max_size=12)


def encode(frames: list[tuple[int, bytes]]) -> bytes:
    return b"".join(struct.pack(">BxxxI", kind, len(content)) + content for kind, content in frames)


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 4000), max_size=20))
def test_every_cut_gives_the_same_streams_in_the_same_order(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    wire = encode(frames)
    decoder = FrameDecoder()
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    chunks = [chunk for begin, end in itertools.pairwise(edges) for chunk in decoder.feed(wire[begin:end])]
    assert [(c.stream, bytes([b])) for c in chunks for b in c.content] == [
        (Stream.STDOUT if kind == 1 else Stream.STDERR, bytes([b])) for kind, content in frames for b in content
    ]


def test_content_is_passed_on_before_its_frame_is_whole() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(struct.pack(">BxxxI", 1, 2**31) + b"abc")[0].content == b"abc"


@pytest.mark.parametrize("wire", [b"HTTP/1.1", b"\x09\0\0\0\0\0\0\1", b"\1\1\0\0\0\0\0\1"])
def test_what_is_no_frame_is_an_error(wire: bytes) -> None:
    with pytest.raises(ValueError, match="not a frame"):
        FrameDecoder().feed(wire)
