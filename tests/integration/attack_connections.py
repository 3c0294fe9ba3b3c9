"""A program that opens very many connections to one port and keeps them: its arguments are the port, their
number and its own address.

It tells on its output what it has done, a line for each step, and takes the next one for each line of input:

    open     so many connections were made, and not one word is said on them
    half     a tenth of those that are still open have begun a request, and do not end it
    again    as many as were closed have been opened again
"""

import contextlib
import resource
import select
import socket
import sys

HALF = b"POST /v1/renew HTTP/1.1\r\nhost: x\r\ncontent-le"


def connect(host: str, port: int) -> socket.socket | None:
    made = socket.socket()
    made.settimeout(30)
    try:
        made.bind((host, 0))
        made.connect(("127.0.0.1", port))
    except OSError:
        made.close()
        return None
    return made


def still_open(sockets: list[socket.socket]) -> list[socket.socket]:
    poll = select.poll()
    by_number = {each.fileno(): each for each in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN | select.POLLHUP | select.POLLERR)
    for number, _ in poll.poll(0):
        by_number.pop(number).close()
    return list(by_number.values())


def tell(step: str, count: int) -> None:
    sys.stdout.write(f"{step} {count}\n")
    sys.stdout.flush()


def main() -> None:
    port, wanted, host = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = [connect(host, port) for _ in range(wanted)]
    sockets = [each for each in made if each is not None]
    tell("open", len(sockets))
    sys.stdin.readline()
    sockets = still_open(sockets)
    for each in sockets[:: 10 if len(sockets) > 10 else 1]:
        with contextlib.suppress(OSError):
            each.send(HALF)
    tell("half", len(sockets))
    for _ in sys.stdin:
        sockets = still_open(sockets)
        more = [connect(host, port) for _ in range(wanted - len(sockets))]
        sockets += [each for each in more if each is not None]
        tell("again", len(more))


if __name__ == "__main__":
    main()
