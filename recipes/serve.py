"""Answers HTTP requests with the classes of a photograph.

    python recipes/serve.py runs/pets
    python recipes/serve.py exported/pets-onnx --port 8080
    curl --data-binary @cat.jpg http://127.0.0.1:8000/classify
    python recipes/serve.py --help

An example with the standard library, for a service within a network: it has neither
encryption nor users. A model is as for `evaluate.py`, or the folder of an export, which
its own runtime runs. SERVE.md has requests, answers and limits.
"""

# ruff: noqa: E402
import sys

from command import command_line, startup
from serving.settings import Config


def start(arguments) -> Config:
    """Returns the checked configuration of a command."""
    config = command_line.parse_options(
        arguments, Config, prog="serve.py", description=Config.__doc__
    )
    with command_line.checking_input():
        config.check()
    return config


if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.main(lambda: start(sys.argv[1:]))

import signal

from rich.console import Console
from serving import models, server

console = Console(markup=False)


def serve(config: Config) -> None:
    """Loads the model, and answers requests until the process is interrupted.

    Raises:
        command_line.BadInput: There is no such model, or the port is taken.
    """
    startup.keep_freed_memory()
    with command_line.checking_input():
        model = models.load(config)
        service = server.Server(model, config)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl+C does
    with service:
        service.batches.warm_up()
        host, port = service.server_address[:2]
        console.print(f"http://{host}:{port}/classify takes photographs. Ctrl+C ends.")
        try:
            service.serve_forever()
        except KeyboardInterrupt:
            console.print("The requests that came are answered.")


if __name__ == "__main__":
    command_line.main(lambda: serve(CONFIG))
