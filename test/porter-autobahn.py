"""The large cases of the Autobahn suite, groups 9, 10, 12 and 13, against an echo server.

Usage: porter-autobahn.py PORT [all]

For each case one line: its number and "good", or what went wrong.  Only the standard library is
used; frames are made here, so that fragments and pieces are what a case says.
"""

import os
import random
import socket
import struct
import sys
import threading
import zlib

PORT = int(sys.argv[1])
ALL = sys.argv[2:] == ["all"]
KIB = 1024
MIB = 1024 * KIB
TEXT, BINARY, CLOSE = 1, 2, 8


def masked(data):
    key = os.urandom(4)
    n = len(data)
    pad = (key * (n // 4 + 1))[:n]
    value = int.from_bytes(data, "little") ^ int.from_bytes(pad, "little")
    return key + value.to_bytes(n, "little")


def frame(opcode, data, fin=True, rsv=0):
    n = len(data)
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    if n < 126:
        head = struct.pack(">BB", first, 0x80 | n)
    elif n < 65536:
        head = struct.pack(">BBH", first, 0x80 | 126, n)
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, n)
    return head + masked(data)


def frames(opcode, data, size, rsv=0):
    """DATA as a message in fragments of SIZE."""
    if not size or len(data) <= size:
        return frame(opcode, data, True, rsv)
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(
        frame(0 if i else opcode, part, i == len(parts) - 1, 0 if i else rsv)
        for i, part in enumerate(parts)
    )


class Client:
    def __init__(self, offer=None):
        self.socket = socket.create_connection(("127.0.0.1", PORT), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = [
            "GET / HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ]
        if offer:
            lines.append("Sec-WebSocket-Extensions: " + offer)
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.file = self.socket.makefile("rb", 1 << 16)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.file.readline()
        assert head.startswith(b"HTTP/1.1 101 "), head
        self.agreed = next((line for line in head.decode().split("\r\n")
                            if line.lower().startswith("sec-websocket-extensions:")), "")

    def write(self, data, piece=0):
        """Send DATA, in pieces, while what comes is read."""
        def run():
            step = piece or len(data) or 1
            for i in range(0, len(data), step):
                self.socket.sendall(data[i : i + step])
        self.writer = threading.Thread(target=run)
        self.writer.start()

    def read(self):
        first, second = self.file.read(2)
        n = second & 127
        assert not second & 128, "a mask"
        if n == 126:
            n, = struct.unpack(">H", self.file.read(2))
        elif n == 127:
            n, = struct.unpack(">Q", self.file.read(8))
        assert first & 128, "a fragment"
        return first & 15, first >> 4 & 7, self.file.read(n)

    def end(self):
        self.writer.join()
        self.socket.sendall(frame(CLOSE, b"\x03\xe8"))
        assert self.read() == (CLOSE, 0, b"\x03\xe8"), "no answer to a close frame"
        assert self.file.read(1) == b"", "the server does not close"
        self.socket.close()


def data_of(opcode, n):
    if opcode == BINARY:
        return random.Random(n).randbytes(n) if n else b""
    text = ("BAsd7&jh23 κόσμε " * (n // 17 + 1)).encode()[:n]
    while text and text[-1] & 0xC0 == 0x80 or text and text[-1] >= 0xC0:
        text = text[:-1]
    return text + b"x" * (n - len(text))


def echo(opcode, n, count=1, fragment=0, piece=0):
    client = Client()
    data = data_of(opcode, n)
    client.write(frames(opcode, data, fragment) * count, piece)
    for _ in range(count):
        got = client.read()
        assert got == (opcode, 0, data), "another answer: %r" % (got[:2],)
    client.end()


def json_like(n, seed):
    r = random.Random(seed)
    text = ",".join('{"id": %d, "name": "κ%d", "on": true}' % (r.randrange(10 ** 6), r.randrange(99))
                    for _ in range(n // 30 + 1))
    text = text.encode()[:n]
    while text[-1] & 0x80:
        text = text[:-1]
    return text + b" " * (n - len(text))


def deflated(data, bits):
    compressor = zlib.compressobj(6, zlib.DEFLATED, -bits)
    return (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


def compressed(offer, n, count, fragment, bits, opcode=TEXT):
    client = Client(offer)
    assert "permessage-deflate" in client.agreed, "not agreed"
    server_bits = 15
    if "server_max_window_bits=" in client.agreed:
        server_bits = int(client.agreed.split("server_max_window_bits=")[1].split(";")[0])
    # We may not remember earlier messages, and the server says that it does not.
    assert "client_no_context_takeover" in client.agreed
    assert "server_no_context_takeover" in client.agreed
    messages = [json_like(n, i) if opcode == TEXT else data_of(BINARY, n)
                for i in range(min(count, 8))]
    wire = [frames(opcode, deflated(m, bits), fragment, 4) for m in messages]
    client.write(b"".join(wire[i % len(wire)] for i in range(count)))
    smaller = 0
    for i in range(count):
        got_opcode, rsv, data = client.read()
        assert got_opcode == opcode and rsv in (0, 4), "another frame"
        if rsv:
            smaller += 1
            # A window as small as agreed must do.
            data = zlib.decompressobj(-server_bits).decompress(data + b"\0\0\xff\xff")
        assert data == messages[i % len(messages)], "another message"
    assert opcode == BINARY or n < 256 or smaller == count, "not compressed"
    client.end()


def cases():
    sizes = [64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB, 16 * MIB]
    for group, opcode in ((1, TEXT), (2, BINARY)):
        for i, n in enumerate(sizes):
            yield "9.%d.%d" % (group, i + 1), n > MIB and (group, n) != (2, 16 * MIB), \
                lambda n=n, opcode=opcode: echo(opcode, n)
    for group, opcode in ((3, TEXT), (4, BINARY)):
        for i, fragment in enumerate(4 ** k * 64 for k in range(9)):
            n = 4 * MIB if ALL or fragment >= MIB else 256 * KIB
            yield "9.%d.%d" % (group, i + 1), False, \
                lambda n=n, f=fragment, opcode=opcode: echo(opcode, n, fragment=f)
    for group, opcode in ((5, TEXT), (6, BINARY)):
        for i, piece in enumerate([64, 128, 256, 512, KIB, 2 * KIB]):
            yield "9.%d.%d" % (group, i + 1), False, \
                lambda p=piece, opcode=opcode: echo(opcode, MIB if ALL else 64 * KIB, piece=p)
    for group, opcode in ((7, TEXT), (8, BINARY)):
        for i, n in enumerate([0, 16, 64, 256, KIB, 4 * KIB]):
            yield "9.%d.%d" % (group, i + 1), False, \
                lambda n=n, opcode=opcode: echo(opcode, n, count=1000)
    yield "10.1.1", False, lambda: echo(TEXT, 64 * KIB, fragment=1300)
    plain = "permessage-deflate; client_max_window_bits"
    shapes = [(16, 0), (64, 0), (256, 0), (KIB, 0), (4 * KIB, 0), (8 * KIB, 0), (16 * KIB, 0),
              (32 * KIB, 0), (64 * KIB, 0), (128 * KIB, 0), (8 * KIB, 256), (16 * KIB, 256),
              (32 * KIB, 256), (64 * KIB, 256), (128 * KIB, 256), (128 * KIB, KIB),
              (128 * KIB, 4 * KIB), (128 * KIB, 32 * KIB)]

    def count(n):
        return (1000 if n <= 4 * KIB else 100) if ALL else max(3, min(100, 256 * KIB // n))

    for group, opcode in ((1, TEXT), (2, TEXT), (3, BINARY), (4, BINARY), (5, TEXT)):
        for i, (n, fragment) in enumerate(shapes):
            yield "12.%d.%d" % (group, i + 1), group in (2, 4, 5), \
                lambda n=n, f=fragment, o=opcode: compressed(plain, n, count(n), f, 15, o)
    none = "permessage-deflate; server_no_context_takeover"
    offers = [plain, none, "permessage-deflate; server_max_window_bits=9",
              "permessage-deflate; server_max_window_bits=15",
              none + "; server_max_window_bits=9", none + "; server_max_window_bits=15",
              none + "; server_max_window_bits=9, " + none + ", permessage-deflate"]
    for group, offer in enumerate(offers):
        for i, (n, fragment) in enumerate(shapes):
            yield "13.%d.%d" % (group + 1, i + 1), group and i % 5 != 3, \
                lambda n=n, f=fragment, o=offer, b=9 + group: compressed(o, n, count(n), f, b)


random.seed(1)
for name, long, case in cases():
    if long and not ALL:
        continue
    try:
        case()
        print(name, "good", flush=True)
    except Exception as error:
        print(name, "failed:", repr(error), flush=True)
print("end", flush=True)
