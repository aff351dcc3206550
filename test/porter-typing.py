"""How soon a key is echoed in a terminal Emacs while WebSocket messages come in bursts.

Usage: porter-typing.py KEYS BURST COMMAND...

COMMAND is an Emacs that writes the port of an echo server to the file named by $PORT_FILE.
One process sends BURST messages at once and reads the answers, over and over; the other types
KEYS keys and prints the milliseconds until each was echoed: "p50 P p99 P max P, N messages".
"""

import os
import pty
import random
import select
import signal
import socket
import struct
import sys
import tempfile
import termios
import fcntl
import time

keys, burst, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
directory = tempfile.mkdtemp()
port_file = os.path.join(directory, "port")
loader = 0
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(PORT_FILE=port_file, HOME=directory, TERM="screen")
    os.execvp(command[0], command)
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))


def drain(seconds):
    """Read what the terminal shows until it is quiet for SECONDS."""
    while select.select([terminal], [], [], seconds)[0]:
        os.read(terminal, 65536)


def port():
    end = time.monotonic() + 30
    while time.monotonic() < end:
        drain(0.1)
        if os.path.exists(port_file) and os.path.getsize(port_file):
            return int(open(port_file).read())
    sys.exit("Emacs does not start")


def load(number, counter):
    s = socket.create_connection(("127.0.0.1", number))
    s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
              b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += s.recv(1)
    out = (b"\x81\xa0\0\0\0\0" + b"m" * 32) * burst
    while True:
        s.sendall(out)
        left = 34 * burst
        while left:
            left -= len(s.recv(min(left, 65536)))
        os.write(counter, b".")
        time.sleep(0.01)


def echo_ms(key):
    start = time.monotonic()
    os.write(terminal, key)
    while time.monotonic() < start + 5:
        if select.select([terminal], [], [], 1)[0] and key in os.read(terminal, 65536):
            return 1000 * (time.monotonic() - start)
    sys.exit("a key was not echoed")


try:
    number = port()
    drain(0.5)
    counted, counter = os.pipe()
    loader = os.fork()
    if loader == 0:
        load(number, counter)
    time.sleep(0.3)
    times = []
    for i in range(keys):
        times.append(echo_ms(b"zqxw"[i % 4:][:1]))
        time.sleep(random.uniform(0.06, 0.12))
        drain(0)
        if i % 60 == 59:
            os.write(terminal, b"\r")
            drain(0.05)
    times.sort()
    messages = burst * len(os.read(counted, 65536))
    print("p50 %.1f p99 %.1f max %.1f, %d messages"
          % (times[keys // 2], times[int(keys * 0.99)], times[-1], messages))
finally:
    for each in (loader, pid):
        if each:
            os.kill(each, signal.SIGKILL)
