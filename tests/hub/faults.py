"""Runs faults: processes download weights and save models while errors occur.

    python -m tests.hub.faults              a minute
    python -m tests.hub.faults kill disk    those with one of the words in their names

A line for each fault states the fault and its outcomes; the exit code is 1 if
anything was not ok. The processes have the real client, a Hub on this machine, and
caches of their own.
"""

import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from . import accidents, jobs
from .local_hub import LocalHub

TOKEN = "hf_secret"


FORKS = multiprocessing.get_context("fork" if hasattr(os, "fork") else None)


def start(job, *values, **conditions):
    """Starts a process; returns (process, connection)."""
    parent, child = FORKS.Pipe()
    arguments = (child, job, values, conditions)
    process = FORKS.Process(target=jobs.perform, args=arguments)
    process.start()
    child.close()
    return process, parent


def end(process, connection):
    """The result of a process; a token in its log is an error."""
    try:
        result, logged = connection.recv()
    except EOFError:
        result, logged = "killed", ""
    process.join()
    return "THE TOKEN IS IN THE LOG" if TOKEN in result + logged else result


class Run:
    """One fault: a fresh Hub with a model, and a fresh home.

    Attributes:
        hub: `LocalHub` with the repository "me/vit" and the file "vit.npz".
        home: Folder of the caches.
        bucket: Whether the model comes from the plain address.
        outcomes: List of (outcome, expected pattern).
    """

    def __init__(self, models, bucket):
        self.models, self.bucket, self.outcomes = models, bucket, []
        self.home = Path(tempfile.mkdtemp(prefix="faults-"))
        self.hub = LocalHub()
        self.hub.add("me/vit", read(models.folder))
        self.hub.files["vit.npz"] = models.npz.read_bytes()
        self.source = self.hub.address("vit.npz") if bucket else "me/vit"

    def start(self, job, *values, environment=None, **conditions):
        """Starts a process that uses this Hub and this home."""
        conditions["environment"] = {
            "HF_HOME": str(self.home / "cache"),
            "HF_ENDPOINT": self.hub.endpoint,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_ETAG_TIMEOUT": "1",
            "HF_TOKEN": "",
            "KERASVIT_WEIGHTS_DIR": "",
            **(environment or {}),
        }
        return start(job, *values, **conditions)

    def expect(self, wanted, job="by_name", *given, **conditions):
        """Runs a job in a process and records its outcome."""
        given = given or ((self.source,) if job == "by_name" else ())
        self.note(end(*self.start(job, *given, **conditions)), wanted)

    def note(self, outcome, wanted):
        """Records an outcome and the expected pattern."""
        if outcome == self.models.right:
            outcome = "the right weights"
        self.outcomes.append((outcome.replace("\n", " "), wanted))

    def blob(self):
        """Path of the weights in the cache."""
        names = ("vit.npz",) if self.bucket else ("model.safetensors",)
        return next(self.home.glob(f"cache/**/{names[0]}")).resolve()

    def close(self):
        """Stops the Hub and deletes the home."""
        self.hub.close()
        for root, folders, _ in os.walk(self.home):
            for name in folders:
                os.chmod(Path(root) / name, 0o755)
        shutil.rmtree(self.home)


def read(folder):
    """{name: bytes}."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


RIGHT = "^the right weights$"


def once(accident):
    """A fault that happens once: the download succeeds."""

    def fault(run):
        run.hub.faults = [accident]
        run.expect(RIGHT)

    return fault


def always(accident, wanted):
    """A fault at every request: the download fails, then succeeds without it."""

    def fault(run):
        run.hub.faults = accidents.always(accident)
        run.expect(f"^DownloadError.*({wanted})")
        run.hub.faults = []
        run.expect(RIGHT)

    return fault


def killed(run):
    """Kills a process in the middle of a download."""
    fault, reached, go = accidents.hanging()
    run.hub.faults = [fault]
    process, connection = run.start("by_name", run.source)
    reached.wait(30)
    process.kill()
    go.set()
    run.note(end(process, connection), "^killed$")
    run.expect(RIGHT)


def two_at_once(run):
    """Starts two processes while the server is slow."""

    def slow(handler, kind):
        time.sleep(0.5 * (kind in accidents.BODIES))

    run.hub.faults = [slow]
    for started in [run.start("by_name", run.source) for _ in range(2)]:
        run.note(end(*started), RIGHT)
    sent = run.hub.count("GET", "/files/" if run.bucket else "/content/")
    run.note(f"{sent} download", "^1 ")


def read_only(run):
    """A process reads a read-only cache, first an empty one."""
    (run.home / "cache").mkdir()
    writable(run.home, False)
    run.expect("^DownloadError.*may not be written.*HF_HOME", obedient=True)
    writable(run.home, True)
    run.expect(RIGHT)
    writable(run.home, False)
    run.expect(RIGHT, obedient=True)


def writable(folder, yes):
    """Sets the owner's permission to write for a folder and its files."""
    for root, _, files in os.walk(folder, topdown=not yes):
        os.chmod(root, 0o755 if yes else 0o555)
        for name in files:
            if not (path := Path(root) / name).is_symlink():
                os.chmod(path, 0o644 if yes else 0o444)


def full_disk(run):
    """Limits the size of files to less than the weights need."""
    run.expect("^DownloadError.*disk of the cache is full", largest_file=8192)
    run.expect(RIGHT)


def damaged_cache(change):
    """A damaged cache is an error offline and is downloaded again online."""

    def fault(run):
        run.expect(RIGHT)
        content = run.blob().read_bytes()
        run.blob().write_bytes(change(content))
        offline = {"HF_HUB_OFFLINE": "1"}
        run.expect("^DownloadError.*damaged", environment=offline)
        run.expect(RIGHT)
        run.expect(RIGHT, environment=offline)

    return fault


def server_gone(run):
    """The server is there for the first process only."""
    run.expect(RIGHT)
    run.hub.close()
    run.expect(RIGHT)
    shutil.rmtree(run.home / "cache")
    run.expect("^DownloadError.*(not in the cache|cannot be downloaded).*elsewhere")


def stale_token(run):
    """The token of the user has expired."""
    run.expect(RIGHT, environment={"HF_TOKEN": TOKEN})


def refused(wanted, **options):
    """The repository may not be read."""

    def fault(run):
        run.hub.add("me/vit", read(run.models.folder), **options)
        run.expect(f"^DownloadError.*{wanted}", environment={"HF_TOKEN": TOKEN})

    return fault


def save_killed(run):
    """Kills `save_pretrained` at each of its file operations in turn."""
    folders, result = [], "killed"
    while result == "killed":
        folder = run.home / f"vit{len(folders)}"
        shutil.copytree(run.models.folder, folder)
        folders.append(str(folder))
        result = end(*run.start("save", str(folder), 2, len(folders)))
    loaded = [end(*run.start("load", folder)) for folder in folders]
    known = [(run.models.old, "old"), ("CheckpointError", "refused")]
    known.append((run.models.new, "new"))
    words = [next((w for k, w in known if r.startswith(k)), "another") for r in loaded]
    order = [w for i, w in enumerate(words) if words[i - 1 : i] != [w]]
    run.note(" then ".join(order), "^old then refused then new$")
    torn = words.index("refused")
    run.note(loaded[torn], "A save was stopped between the two files.* save the model")
    for folder in (folders[torn - 1], folders[torn]):
        run.expect("^saved", "save", folder, 2)
        run.expect(f"^{run.models.new}$", "load", folder)


def save_without_room(run):
    """Saves a model on a full disk."""
    folder = run.home / "vit"
    shutil.copytree(run.models.folder, folder)
    before = read(folder)
    run.expect("^OSError", "save", str(folder), 2, largest_file=8192)
    run.note("old" if read(folder) == before else "changed", "^old$")


def push_fails(run):
    """The Hub refuses the commit; then a process is killed while it uploads."""
    repository, who = run.hub.repositories["me/vit"], {"HF_TOKEN": "good"}
    before = dict(repository.files)

    def refuse(handler, kind):
        return "/commit/" in handler.path and accidents.status(500, ("api",))(
            handler, kind
        )

    run.hub.faults = accidents.always(refuse)
    run.expect("^UploadError.*answers 500", "push", "me/vit", 2, environment=who)
    fault, reached, go = accidents.hanging(("api",))
    run.hub.faults = [lambda h, kind: "/uploads/" in h.path and fault(h, kind)]
    process, connection = run.start("push", "me/vit", 2, environment=who)
    reached.wait(30)
    process.kill()
    go.set()
    run.note(end(process, connection), "^killed$")
    run.note("old" if repository.files == before else "changed", "^old$")
    run.expect("^pushed", "push", "me/vit", 2, environment=who)


BOTH = {  # on the Hub and in the authors' buckets
    "nothing": once(lambda handler, kind: False),
    "a bit flips, once": once(accidents.flipped),
    "a bit flips, always": always(
        accidents.flipped, "not the expected file|not the file"
    ),
    "cut short, once": once(accidents.ended),
    "cut short, always": always(accidents.ended, "RemoteProtocol|bytes came"),
    "connection reset, once": once(accidents.reset),
    "503, once": once(accidents.status(503)),
    "503, always": always(accidents.status(503), "answers 503"),
    "429, once": once(accidents.status(429)),
    "a page to log in at, always": always(accidents.portal, "Consistency|log in"),
    "kill -9 in the middle, then again": killed,
    "two processes at once": two_at_once,
    "a cache that may not be written": read_only,
    "a full disk, then room": full_disk,
    "the cache loses a bit": damaged_cache(lambda old: old[:-1] + bytes([old[-1] ^ 1])),
    "the cache is truncated": damaged_cache(lambda old: old[:-9]),
    "the server goes away": server_gone,
    "a token out of date (401)": stale_token,
}
HUB = {
    "gated": refused("asks for your consent", gated=True),
    "private, or none (401)": refused("private", private=True),
    "save_pretrained is killed": save_killed,
    "save_pretrained on a full disk": save_without_room,
    "push_to_hub fails": push_fails,
}


def main(words):
    """Runs the faults whose names contain a word; returns whether one failed."""
    faults = [
        *((f"Hub: {name}", fault, False) for name, fault in (BOTH | HUB).items()),
        *((f"bucket: {name}", fault, True) for name, fault in BOTH.items()),
    ]
    with tempfile.TemporaryDirectory(prefix="faults-") as root:
        models = prepare(Path(root))
        wrong = 0
        for name, fault, bucket in faults:
            if words and not any(word in name for word in words):
                continue
            run = Run(models, bucket)
            try:
                fault(run)
            finally:
                run.close()
            ok = all(re.search(wanted, outcome) for outcome, wanted in run.outcomes)
            text = "; then ".join(outcome[:160] for outcome, _ in run.outcomes)
            print(f"{'ok' if ok else 'NOT OK':7}{name}: {text}", flush=True)
            wrong += not ok
    print(f"{wrong} not ok")
    return wrong > 0


def prepare(root):
    """Two models: folders, a file, and hashes of their weights."""
    folders = [root / f"vit{seed}" for seed in (1, 2)]
    npz, conditions = root / "vit.npz", {"environment": {}}
    for seed, folder in enumerate(folders, 1):
        end(*start("save", str(folder), seed, **conditions))
    end(*start("save_npz", str(folders[0]), str(npz), **conditions))
    old, new = end(*start("load", *map(str, folders), **conditions)).split(" ")
    right = old.split("/")[0]
    return SimpleNamespace(folder=folders[0], npz=npz, right=right, old=old, new=new)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
