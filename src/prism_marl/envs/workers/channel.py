"""Messages between two processes over two pipes: arrays as their plain numbers, JSON for the rest, never pickle.

A message is its length in eight bytes and its bytes. The side that waits never blocks in a write: while the other end
does not read, what it has to say is taken in.
"""

import json
import math
import os
import select
import struct
import time
from typing import Any

import numpy as np

LENGTH = struct.Struct("<Q")


def pack(words: Any, arrays: dict[str, np.ndarray] | None = None) -> bytes:
    """JSON and named arrays as one message: the length of a header, the header, the numbers of all arrays."""
    held = {name: np.asarray(value) for name, value in (arrays or {}).items()}
    described = [(name, value.dtype.str, value.shape) for name, value in held.items()]
    header = json.dumps([words, described]).encode()
    return b"".join([LENGTH.pack(len(header)), header, *(value.tobytes() for value in held.values())])


def unpack(message: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """What ``pack`` was given; the arrays are views of the message."""
    start = LENGTH.size + LENGTH.unpack_from(message)[0]
    words, described = json.loads(message[LENGTH.size : start])
    arrays = {}
    for name, dtype, shape in described:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(message, dtype, count, start).reshape(shape)
        start += arrays[name].nbytes
    return words, arrays


class Channel:
    """One end of a pair of pipes."""

    def __init__(self, reading: int, writing: int):
        self._reading, self._writing = reading, writing
        self._in, self._out = bytearray(), bytearray()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    def send(self, message: bytes) -> None:
        """Returns at once; what the pipe does not take yet goes along with the next call."""
        self._out += LENGTH.pack(len(message)) + message
        self._move(0.0)

    def receive(self, seconds: float | None) -> bytes:
        """The next message. ``TimeoutError`` after so many seconds without one, ``EOFError`` if nobody is there."""
        until = None if seconds is None else time.monotonic() + seconds
        while (message := self._whole()) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self._move(left)
        return message

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)

    def _whole(self) -> bytes | None:
        if len(self._in) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._in)[0]
        if len(self._in) < end:
            return None
        message = bytes(self._in[LENGTH.size : end])
        del self._in[:end]
        return message

    def _move(self, seconds: float | None) -> None:
        """Take in and give out what can be moved now; wait for the first chance."""
        waiting = select.poll()
        waiting.register(self._reading, select.POLLIN)
        if self._out:
            waiting.register(self._writing, select.POLLOUT)
        for place, event in waiting.poll(None if seconds is None else 1000 * seconds):
            if place == self._writing and event & select.POLLOUT:
                del self._out[: os.write(self._writing, self._out[: 2**16])]
            elif place == self._reading:
                self._take_in()
            else:
                raise EOFError

    def _take_in(self) -> None:
        part = os.read(self._reading, 2**20)
        if not part:
            raise EOFError
        self._in += part
