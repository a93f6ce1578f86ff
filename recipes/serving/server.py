"""The server: one thread for each connection, and one that runs the model."""

import contextlib
import errno
import http.server
import io
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from .models import Served
from .settings import Config

# Those of `kerasvit.data.SUFFIXES`; MPO is JPEG. Pillow decodes some others, such as
# icons, before their size is known.
FORMATS = ("JPEG", "PNG", "WebP", "AVIF", "BMP", "GIF", "TIFF")


class Refused(Exception):
    """A request that is not answered with classes.

    Attributes:
        status: Of HTTP.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Batches:
    """Runs a model on the images that wait, in one thread.

    While the model runs, images pile up, and the next call takes all of them: an image
    never waits for others to come.

    Args:
        model: What is run.
        size: Most images of a call.
        most: Most images that wait.
    """

    def __init__(self, model: Served, size: int, most: int) -> None:
        self._model, self._size, self._most = model, model.batch or size, most
        self._waiting: deque[tuple[np.ndarray, Future]] = deque()
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1)

    def add(self, image: np.ndarray) -> Future:
        """Returns what will be the classes of an image.

        Raises:
            Refused: Too many images wait.
        """
        future: Future = Future()
        with self._lock:
            if len(self._waiting) >= self._most:
                raise Refused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"{self._most} images wait already. Ask again later.",
                )
            self._waiting.append((image, future))
        self._thread.submit(self._run)
        return future

    def classify(self, images: list[np.ndarray]) -> Sequence:
        """Returns the classes of images, at most as many as a call has.

        The last is repeated until they are 1, 2, 4, …, so that a backend compiles few
        programs, or as many as the model takes.
        """
        power = min(1 << (len(images) - 1).bit_length(), self._size)
        missing = (self._model.batch or power) - len(images)
        return self._model.classify(np.stack(images + images[-1:] * missing))

    def warm_up(self) -> None:
        """Runs the model with each number of images, which compiles it."""
        image, count = self._model.prepare(Image.new("RGB", (64, 64))), 1
        while count < 2 * self._size:
            self.classify([image] * min(count, self._size))
            count *= 2

    def close(self) -> None:
        """Waits until the images that came are answered."""
        self._thread.shutdown()

    def _run(self) -> None:
        with self._lock:
            taken = self._taken()
        # Those whose request has timed out are left out.
        taken = [each for each in taken if each[1].set_running_or_notify_cancel()]
        if not taken:
            return
        try:
            found = self.classify([image for image, _ in taken])
        except Exception as error:  # the threads that wait raise it
            for _, future in taken:
                future.set_exception(error)
        else:
            for (_, future), classes in zip(taken, found, strict=False):
                future.set_result(classes)

    def _taken(self):
        """Returns the first images that wait and have one shape."""
        taken = []
        while self._waiting and len(taken) < self._size:
            if taken and self._waiting[0][0].shape != taken[0][0].shape:
                break
            taken.append(self._waiting.popleft())
        return taken


class Server(http.server.ThreadingHTTPServer):
    """Answers requests.

    Args:
        model: What answers.
        config: Limits.

    Raises:
        ValueError: The address cannot be listened to.
    """

    request_queue_size = 128  # connections that wait to be accepted
    daemon_threads = False  # the requests that came are answered before the end

    def __init__(self, model: Served, config: Config) -> None:
        self.model, self.config, self.ending = model, config, False
        self.batches = Batches(model, config.batch_size, config.queue)
        Image.MAX_IMAGE_PIXELS = None  # the limit is that of the configuration
        try:
            super().__init__((config.host, config.port), Handler)
        except (OSError, UnicodeError) as error:  # the latter of names such as a..b
            of_port = getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES)
            name = "port" if of_port else "host"
            raise ValueError(
                f"`{name}`: {config.host}:{config.port} cannot be listened to: {error}."
                f" Give another --{name}."
            ) from error

    def server_close(self) -> None:
        self.ending = True  # of connections that send one request after another, too
        super().server_close()
        self.batches.close()


class Received(io.RawIOBase):
    """The bytes that come from a connection until an end time.

    A timeout of the connection is one of each call: a client that sends a byte a second
    would hold its thread, and the end of the server, for as long as it likes.

    Attributes:
        end: Of `time.monotonic`; reading later raises a `TimeoutError`.
    """

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection, self.end = connection, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        usual = self._connection.gettimeout()
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(usual)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one connection: GET / says what is served, POST /classify classifies."""

    server: Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.timeout = self.server.config.timeout
        super().setup()
        self.received = Received(self.connection, 0)
        self.rfile = io.BufferedReader(self.received)

    def handle_one_request(self) -> None:
        """Answers a request, whose head must come within the time of a request."""
        self._start_time()
        super().handle_one_request()
        if self.server.ending:
            self.close_connection = True

    def _start_time(self) -> None:
        self.received.end = time.monotonic() + self.server.config.timeout

    def do_GET(self) -> None:
        if self.path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "GET / or POST /classify.")
        else:
            self._send(HTTPStatus.OK, self.server.model.about)

    def do_POST(self) -> None:
        try:
            classes = self._classes()
        except Refused as refused:
            self._refuse(refused.status, str(refused))
        except Exception:  # a bug, whose traceback is printed
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "The server's log says why.")
            raise
        else:
            rows = [{"name": name, "probability": share} for name, share in classes]
            self._send(HTTPStatus.OK, {"classes": rows})

    def _classes(self):
        config = self.server.config
        body = self._body(config.megabytes * 1e6)
        image = opened(body, config.megapixels * 1e6)
        try:
            prepared = self.server.model.prepare(image)
        except ValueError as error:  # of other channels, or too narrow
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        future = self.server.batches.add(prepared)
        try:
            return future.result(config.timeout)
        except TimeoutError as error:
            future.cancel()
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"The model did not answer within {config.timeout:g} s.",
            ) from error

    def _body(self, most: float) -> bytes:
        """Returns the body of the request."""
        if self.path != "/classify":
            raise Refused(HTTPStatus.NOT_FOUND, "GET / or POST /classify.")
        stated = self.headers.get("Content-Length", "")
        if not (stated.isascii() and stated.isdigit()):
            raise Refused(
                HTTPStatus.LENGTH_REQUIRED,
                "State the Content-Length, the number of bytes of the photograph.",
            )
        count = float(stated)  # int() takes 4,300 digits
        if count > most:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A photograph has at most {most / 1e6:g} MB. Received: "
                f"{count / 1e6:.4g} MB.",
            )
        return self._read(int(count))

    def _read(self, count: int) -> bytes:
        """Returns so many bytes, which must come within the time of a request."""
        parts = []
        self._start_time()
        while count:
            try:
                part = self.rfile.read1(min(count, 2**16))
            except TimeoutError as error:
                raise Refused(
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"The photograph did not come within {self.timeout:g} s.",
                ) from error
            if not part:
                raise Refused(
                    HTTPStatus.BAD_REQUEST,
                    f"The request ended {count} bytes before its Content-Length.",
                )
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _refuse(self, status, message):
        """Sends an error and closes the connection.

        The rest of the body is read first, within the time of a request: a client that
        still sends it would see a reset connection and no answer.
        """
        self.close_connection = True
        self._send(status, {"error": message}, {"Connection": "close"})
        self._start_time()
        with contextlib.suppress(OSError):  # the client is gone, or sends too slowly
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read1(2**16):
                pass

    def send_error(self, code, message=None, explain=None) -> None:
        """Refuses what is no request of HTTP, or of another method."""
        self._refuse(code, message or HTTPStatus(code).phrase)

    def _send(self, status, answer, headers=None):
        body = json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args) -> None:
        """Logs nothing: what a client may see is in the answers."""


def opened(body: bytes, most: float) -> Image.Image:
    """Returns a decoded photograph.

    Raises:
        Refused: It is none, it is damaged, or it has too many pixels.
    """
    try:
        image = Image.open(io.BytesIO(body), formats=FORMATS)
        if image.width * image.height > most:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A photograph has at most {most / 1e6:g} million pixels. Received: "
                f"{image.width} × {image.height}.",
            )
        # It decodes the image, and reads the EXIF data, which may be damaged, too.
        ImageOps.exif_transpose(image, in_place=True)
    except Refused:
        raise
    except UnidentifiedImageError as error:
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"The body is no photograph of {', '.join(FORMATS)}, or is damaged. Send "
            "the bytes of such a file, and convert others, such as HEIC, to JPEG.",
        ) from error
    # Pillow's decoders raise many types of errors for damaged files.
    except Exception as error:
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"The photograph is damaged: Pillow cannot read it ({error}).",
        ) from error
    return image
