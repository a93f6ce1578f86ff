"""Faults between server and client, for `LocalHub.faults`."""

import base64
import functools
import hashlib
import socket
import struct
import threading
import types

BODIES = ("body", "file")  # of the Hub's large files and of plain addresses
TIMES = 40  # more often than any client tries


def flipped(handler, kind):
    """One bit is wrong."""
    return _replaced(handler, kind, lambda right: right[:-1] + bytes([right[-1] ^ 1]))


def shorter(handler, kind):
    """A complete response with a truncated file."""
    return _replaced(handler, kind, lambda right: right[:-9])


def longer(handler, kind):
    """A complete response with more bytes than the file."""
    return _replaced(handler, kind, lambda right: right + b"more")


def portal(handler, kind):
    """A login page, as a captive portal sends for any address."""
    page = b"<html>Welcome! Your room, please."
    answer = functools.partial(handler.send, 200, page, Content_Type="text/html")
    return answer if kind in BODIES else None


def ended(handler, kind):
    """The server closes the connection in the middle (FIN)."""
    return _broken(handler, kind)


def reset(handler, kind):
    """The server resets the connection in the middle (RST)."""
    linger = struct.pack("ii", 1, 0)
    return _broken(handler, kind, (socket.SOL_SOCKET, socket.SO_LINGER, linger))


def status(code, kinds=BODIES, **headers):
    """The response is a status without a body."""

    def fault(handler, kind):
        answer = functools.partial(handler.send, code, **headers)
        return answer if kind in kinds else None

    return fault


def expired(handler, kind):
    """The server rejects a token, with a message that the client does not know."""
    message = 'User Access Token "mine" is expired'
    answer = functools.partial(handler.send, 401, X_Error_Message=message)
    return answer if handler.headers.get("Authorization") else None


def hanging(kinds=BODIES):
    """(fault, reached, go): sends half a response and waits for the event `go`."""
    reached, go = threading.Event(), threading.Event()

    def fault(handler, kind):
        def answer():
            reached.set()
            if kind in BODIES:
                _half(handler)
            go.wait(60)
            handler.close_connection = True

        return answer if kind in kinds else None

    return fault, reached, go


def always(fault):
    """The fault at every request."""
    return [lambda handler, kind: fault(handler, kind) for _ in range(TIMES)]


def _replaced(handler, kind, change):
    def answer():
        right = handler.hub.content(handler.path)
        digest = base64.b64encode(hashlib.md5(right).digest()).decode()
        handler.send(200, change(right), x_goog_hash=f"md5={digest}")

    return answer if kind in BODIES else None


def _broken(handler, kind, option=None):
    def answer():
        _half(handler)
        if option:
            handler.connection.setsockopt(*option)
        handler.close_connection = True
        handler.connection.close()

    return answer if kind in BODIES else None


def _half(handler):
    right = handler.hub.content(handler.path)
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(right)))
    handler.end_headers()
    handler.wfile.write(right[: len(right) // 2])
    handler.wfile.flush()


# Replaces the module `time` where the real client waits between its tries.
NO_TIME = types.SimpleNamespace(sleep=lambda seconds: None)
