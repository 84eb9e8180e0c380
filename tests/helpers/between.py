"""A man in the middle of a client and a broker, who reads each frame of Kafka's protocol and may change the answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from pylogseg.format.messages import wire

#: Gets the number of a request, its fields, and the fields of its answer; it may change these.
Change = Callable[[int, dict[str, Any], dict[str, Any]], None]
#: Gets the number of a request and its fields; returns the answer of a request that no broker gets.
Reply = Callable[[int, dict[str, Any]], "dict[str, Any] | None"]
METADATA, FETCH = 3, 1


def nothing(*_: Any) -> None:
    """Change nothing, reply to nothing."""


class Between:
    """Listens in place of a broker; clients are told its address. Each connection has a thread."""

    def __init__(self, servers: str, change: Change = nothing, reply: Reply = nothing) -> None:
        host, port = servers.split(",")[0].rsplit(":", 1)
        self.to, self.change, self.reply = (host, int(port)), change, reply
        self.requests: list[int] = []
        self.open = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()

    def __enter__(self) -> Between:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self.open += 1
        try:
            broker = socket.create_connection(self.to)
        except OSError:
            client.close()
            return
        with client, broker:
            while (frame := _frame(client)) is not None:
                header = wire.read_header(frame)
                request = wire.request_of(header.key)
                values, _ = wire.decode_body(request, header.version, frame, header.end)
                self.requests.append(header.key)
                answer = self.reply(header.key, values)
                if answer is None:
                    broker.sendall(struct.pack(">i", len(frame)) + frame)
                    back = _frame(broker)
                    if back is None:
                        break
                    answer = self._decoded(header, back)
                self.change(header.key, values, answer)
                parts = wire.answer(header.key, header.version, header.correlation, answer)
                client.sendall(b"".join(map(bytes, parts)))
        self.open -= 1

    def _decoded(self, header: wire.Header, back: bytes) -> dict[str, Any]:
        response = wire.response_of(header.key)
        is_flexible = response.flexible.has(header.version) and header.key != wire.API_VERSIONS
        answer, _ = wire.decode_body(response, header.version, back, 5 if is_flexible else 4)
        if header.key == METADATA:
            for node in answer["brokers"]:
                node.update(host="127.0.0.1", port=self.port)
        if header.key == FETCH:
            for topic in answer["responses"]:
                for part in topic["partitions"]:
                    part["records"] = _Sized(part["records"] or b"")
        return answer


class _Sized(bytes):
    """Records, as `wire.answer` takes them."""

    @property
    def size(self) -> int:
        return len(self)


def _frame(link: socket.socket) -> bytes | None:
    try:
        size = _exactly(link, 4)
        return None if size is None else _exactly(link, struct.unpack(">i", size)[0])
    except OSError:
        return None


def _exactly(link: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            return None
        data += part
    return data
