"""Reading from bare sockets: whatever pieces the bytes come in."""

import socket


def read_to_the_end(connection: socket.socket) -> bytes:
    """All that comes until the other side closes the connection, or resets it."""
    said = b""
    try:
        while piece := connection.recv(65_536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def read_head(connection: socket.socket) -> bytes:
    """What comes until the head of a reply is complete; less if the other side closes the connection before."""
    said = b""
    while b"\r\n\r\n" not in said and (piece := connection.recv(65_536)):
        said += piece
    return said
