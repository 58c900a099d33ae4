"""Messages between two processes over two pipes: arrays as raw bytes, everything else as JSON, never pickle.

A message is its length in eight bytes, followed by its bytes. Both ends are non-blocking: while the other end does not
read, ``receive`` goes on reading, so two processes that send large messages to each other cannot deadlock.
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


def pack(content: Any, arrays: dict[str, np.ndarray] | None = None) -> bytes:
    """JSON and named arrays as one message: length of the header, header, bytes of all arrays."""
    held = {name: np.asarray(value) for name, value in (arrays or {}).items()}
    described = [(name, value.dtype.str, value.shape) for name, value in held.items()]
    header = json.dumps([content, described]).encode()
    return b"".join([LENGTH.pack(len(header)), header, *(value.tobytes() for value in held.values())])


def unpack(message: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """The inverse of ``pack``; the arrays are views of the message."""
    start = LENGTH.size + LENGTH.unpack_from(message)[0]
    content, described = json.loads(message[LENGTH.size : start])
    arrays = {}
    for name, dtype, shape in described:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(message, dtype, count, start).reshape(shape)
        start += arrays[name].nbytes
    return content, arrays


class Channel:
    """One end of a pair of pipes: the file descriptors to read from and to write to."""

    def __init__(self, read: int, write: int):
        self._read, self._write = read, write
        self._received, self._unsent = bytearray(), bytearray()
        os.set_blocking(read, False)
        os.set_blocking(write, False)

    def send(self, message: bytes) -> None:
        """Returns at once; bytes that the pipe cannot take yet are sent by later calls."""
        self._unsent += LENGTH.pack(len(message)) + message
        self._transfer(0.0)

    def receive(self, seconds: float | None) -> bytes:
        """Returns the next message. Raises ``TimeoutError`` after ``seconds`` and ``EOFError`` if the other end is
        closed."""
        until = None if seconds is None else time.monotonic() + seconds
        while (message := self._next_message()) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self._transfer(left)
        return message

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def _next_message(self) -> bytes | None:
        """Remove the first complete message from what was received; None if there is none."""
        if len(self._received) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        message = bytes(self._received[LENGTH.size : end])
        del self._received[:end]
        return message

    def _transfer(self, seconds: float | None) -> None:
        """Wait until one of the pipes is ready, then read and write what is possible."""
        ready = select.poll()
        ready.register(self._read, select.POLLIN)
        if self._unsent:
            ready.register(self._write, select.POLLOUT)
        for descriptor, event in ready.poll(None if seconds is None else 1000 * seconds):
            if descriptor == self._write and event & select.POLLOUT:
                del self._unsent[: os.write(self._write, self._unsent[: 2**16])]
            elif descriptor == self._read:
                self._read_available()
            else:
                raise EOFError

    def _read_available(self) -> None:
        part = os.read(self._read, 2**20)
        if not part:
            raise EOFError
        self._received += part
