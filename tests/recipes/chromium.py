"""A Chromium without a window, steered over pipes by the DevTools protocol."""

import contextlib
import json
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
SECONDS = 60
# Reads commands from its file 3 and answers in its file 4.
WITH_PIPES = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
    # No other host is found.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class Tab:
    """One tab, as wide and high as its screen."""

    def __init__(self, process):
        self.process, self.count, self.session = process, 0, None
        self.events = []  # of the domains that are enabled, {"method", "params"}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]

    def call(self, method, **parameters):
        """Returns the result of a command of the protocol."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while (answer := self._read()).get("id") != self.count:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _read(self):
        text = bytearray()
        while (byte := self.process.stdout.read(1)) != b"\0":
            assert byte, "Chromium has ended."
            text += byte
        return json.loads(text)

    def value(self, expression):
        """Returns the value of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression):
        """Waits until an expression is true."""
        end = time.monotonic() + SECONDS
        while not self.value(expression):
            assert time.monotonic() < end, self.value("document.body.innerText")
            time.sleep(0.05)

    def choose(self, selector, path):
        """Chooses a file in an input of the page."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        found = self.call("DOM.querySelector", nodeId=root, selector=selector)
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=found["nodeId"])

    def drop(self, path):
        """Drops a file on the page."""
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=9, y=9, data=data)


@contextlib.contextmanager
def tab(folder):
    """Yields a tab of a new Chromium, whose profile is in a folder."""
    command = ["sh", "-c", WITH_PIPES, PROGRAM, *OPTIONS, f"--user-data-dir={folder}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        try:
            yield Tab(process)
        finally:
            process.kill()
