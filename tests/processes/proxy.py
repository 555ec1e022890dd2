"""A network in between, for tests: passes bytes on, swallows them without a word, or breaks connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

RESET = struct.pack("ii", 1, 0)  # SO_LINGER on with no time: close sends RST


class Proxy:
    """Listens on a free port and passes every connection on to `port`; each direction has a thread."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._swallowed: set[socket.socket] = set()
        self._dark = False
        self._closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections there have been."""
        return len(self._pairs)

    def black_hole(self) -> None:
        """From now on nothing passes, and nobody is told: packets of all connections, and of new ones, are dropped."""
        with self._lock:
            self._dark = True
            self._swallowed |= {end for pair in self._pairs for end in pair}

    def allow_new(self) -> None:
        """New connections work again; those from before stay dead without a word."""
        with self._lock:
            self._dark = False

    def reset(self) -> None:
        """Break every connection with RST."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    # Wakes the thread that reads from it; closing alone would not.
                    end.shutdown(socket.SHUT_RD)
                end.close()

    def close(self) -> None:
        """Let go of everything."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket()
            with self._lock:
                if self._dark:
                    self._swallowed |= {near, far}
                self._pairs.append((near, far))
            if near not in self._swallowed:
                with contextlib.suppress(OSError):
                    far.connect(("127.0.0.1", self._target))
            for here, there in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pump, args=(here, there), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(65_536):
                if here not in self._swallowed:
                    there.sendall(data)
            # An end, too, is a packet: in the dark it does not arrive.
            if here not in self._swallowed:
                there.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def between(port: int) -> Iterator[Proxy]:
    """A proxy in front of `port`."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
