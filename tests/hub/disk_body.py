"""`DiskBody`: a large file for the local Hub, which is made when it is asked for."""

import hashlib
import threading


class DiskBody:
    """Content of a file on the disk; `LocalHub` accepts it instead of bytes.

    Args:
        path: Path of the file.
        make: Function of the path that writes the file, always with the same bytes.
        made: Function of this object that is called after the file is written.

    Attributes:
        digests: (SHA-256 in hex, MD5 as bytes) after the file was first made, or None.
        size: Number of bytes, or None before the file was first made.
    """

    def __init__(self, path, make, made=lambda body: None):
        self.path, self._make, self._made = path, make, made
        self.digests, self.size = None, None
        self._lock = threading.Lock()

    def __repr__(self):
        return f"DiskBody({str(self.path)!r})"

    def open(self):
        """Opens the file, which is made if it is not there."""
        with self._lock:
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._make(self.path)
                self._made(self)
            file = self.path.open("rb")
            if self.digests is None:
                self.size = self.path.stat().st_size
                sha256, md5 = hashlib.sha256(), hashlib.md5()
                while piece := file.read(1 << 20):
                    sha256.update(piece)
                    md5.update(piece)
                self.digests = sha256.hexdigest(), md5.digest()
                file.seek(0)
        return file

    def delete(self):
        """Deletes the file; a later request makes it again."""
        with self._lock:
            self.path.unlink(missing_ok=True)


def length(body):
    """Number of bytes of a body."""
    if isinstance(body, bytes):
        return len(body)
    if body.size is None:
        body.open().close()
    return body.size


def sha256(body):
    """SHA-256 of a body in hex."""
    if isinstance(body, bytes):
        return hashlib.sha256(body).hexdigest()
    length(body)
    return body.digests[0]


def md5(body):
    """MD5 of a body as bytes."""
    if isinstance(body, bytes):
        return hashlib.md5(body).digest()
    length(body)
    return body.digests[1]


def known_sha256(body):
    """SHA-256 of a body; None for a file that was not made yet."""
    if isinstance(body, bytes):
        return sha256(body)
    return body.digests and body.digests[0]


def pieces(body, first):
    """Yields the bytes of a body from a position on."""
    if isinstance(body, bytes):
        yield body[first:]
        return
    with body.open() as file:
        file.seek(first)
        while piece := file.read(1 << 20):
            yield piece
