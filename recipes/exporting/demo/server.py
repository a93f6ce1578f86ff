"""The files of the page: an ONNX export, and ONNX Runtime's files for browsers."""

import http.server
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from serving import exports

PAGE = Path(__file__).with_name("page.html")
VERSION = "1.30.0"  # of onnxruntime-web
RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
EXPORT = ("export.json", "model.onnx")
HOST = "127.0.0.1"


def checked_export(folder: str) -> Path:
    """Returns the path of an export that the page can show.

    The page gives the graph the pixels as they are: to resize them there, too, would be
    a third program of the transform, beside Pillow's and the graph's.

    Raises:
        ValueError: It is no export, or takes or returns something else than the page.
    """
    path = Path(os.path.expanduser(folder))
    if not (path / "export.json").is_file():
        raise ValueError(
            f"`folder`: {path} has no export.json. Give the folder of an export: "
            "python recipes/export.py MODEL --format onnx --inputs photo."
        )
    stated = exports.described(path, "folder")
    batch = stated["input"]["shape"][0]
    options = {  # {option: what the export has, what the page needs}
        "format": (stated["format"], "onnx"),
        "inputs": (stated["input"]["values"], "photo"),
        "outputs": (stated["output"]["name"], "probabilities"),
        "batch": (batch, batch and 1),
    }
    for option, (found, needed) in options.items():
        if found != needed:
            raise ValueError(
                f"`folder`: the page needs an export with --{option} {needed}, and "
                f"{path} has {found}. Write it again: python recipes/export.py "
                f"{stated['model']} --format onnx --inputs photo --out {path} --replace"
            )
    return path


def runtime() -> Path:
    """Returns the folder of the runtime's files, which npm fetches the first time.

    Raises:
        ValueError: npm is not installed, or cannot fetch them.
    """
    cache = Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))
    folder = cache / "kerasvit" / f"onnxruntime-web-{VERSION}"
    if not folder.is_dir():
        npm = shutil.which("npm")
        if npm is None:
            raise ValueError(
                "npm, which fetches onnxruntime-web once, is not installed: install "
                "Node.js, https://nodejs.org."
            )
        print(f"npm fetches onnxruntime-web {VERSION} into {cache}, once.", flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            # No script of a package has to run: two files are needed.
            command = [npm, "install", "--ignore-scripts", "--prefix", temporary]
            process = subprocess.run(
                [*command, f"onnxruntime-web@{VERSION}"],
                capture_output=True,
                encoding="utf-8",
            )
            if process.returncode:
                raise ValueError(
                    f"npm cannot fetch onnxruntime-web {VERSION} into {cache}. It says:"
                    f"\n{process.stderr.strip()}"
                )
            found = Path(temporary, "node_modules", "onnxruntime-web", "dist")
            for file in found.iterdir():  # more than 100 MB, of which 14 are needed
                if file.name not in RUNTIME:
                    file.unlink()
            found.rename(folder)
    return folder


def page_server(
    export: Path, runtime: Path, port: int
) -> http.server.ThreadingHTTPServer:
    """Returns a server of the page, for this machine alone.

    Args:
        export: Folder of the export.
        runtime: Folder of the runtime's files.
        port: 0: one that is free.

    Raises:
        ValueError: The port is taken.
    """
    try:
        server = http.server.ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise ValueError(
            f"`port`: {port} cannot be used: {error}. Give another --port, or 0 for "
            "one that is free."
        ) from error
    server.files = {
        "/": PAGE,
        **{f"/{name}": export / name for name in EXPORT},
        **{f"/{name}": runtime / name for name in RUNTIME},
    }
    return server


class Handler(http.server.SimpleHTTPRequestHandler):
    """Answers with the files of the server, and no others."""

    extensions_map = {
        ".html": "text/html; charset=utf-8",
        ".json": "application/json",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".onnx": "application/octet-stream",
    }

    def translate_path(self, path):
        """Returns the file of an address; "", which is none, of any other."""
        return str(self.server.files.get(path.split("?")[0], ""))

    def end_headers(self):
        """Lets the page have threads, and the next export take this one's place."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_request(self, code="-", size="-"):
        """Prints nothing; errors are printed."""
