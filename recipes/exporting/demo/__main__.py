"""Serves a page that classifies photographs in the browser, with an ONNX export.

    python recipes/export.py runs/pets --format onnx --inputs photo --out web/pets
    python -m recipes.exporting.demo web/pets

The second command runs from the repository's root. npm fetches ONNX Runtime's files for
browsers once; the page needs nothing else, and sends the photographs nowhere.
"""

import contextlib
import dataclasses
import sys
from typing import Annotated

import tyro
from command import command_line, limits

from . import server


@dataclasses.dataclass(frozen=True)
class Config:
    """Serves a page that classifies photographs in the browser, with an ONNX export."""

    folder: Annotated[str, tyro.conf.Positional]
    """Folder that export.py has written with --format onnx --inputs photo."""
    port: int = 8000
    """Port of the page's address; 0: one that is free."""


def main(arguments) -> None:
    """Serves the page until it is interrupted."""
    config = command_line.parse_options(
        arguments,
        Config,
        prog="python -m recipes.exporting.demo",
        description=Config.__doc__,
    )
    with command_line.checking_input():
        limits.check(config)
        export = server.checked_export(config.folder)
        page = server.page_server(export, server.runtime(), config.port)
    address = f"http://{server.HOST}:{page.server_port}"
    print(f"{address} shows the page. Ctrl+C ends it.", flush=True)
    with page, contextlib.suppress(KeyboardInterrupt):
        page.serve_forever()


if __name__ == "__main__":
    command_line.main(lambda: main(sys.argv[1:]))
