"""A Hugging Face Hub on this machine, for the real client: downloads, uploads, faults.

It answers as the Hub does to huggingface_hub ≥ 2.0: a file of tensors is sent by
another host (`localhost` beside `127.0.0.1`) or lies in a Xet store, small files are
sent by the Hub itself.
"""

import base64
import hashlib
import json
import re
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kerasvit.hub.front_matter import split_page

from .disk_body import known_sha256, length, md5, pieces, sha256

LARGE = (".safetensors", ".npz")


class LocalHub:
    """Repositories in memory and the faults to show.

    Attributes:
        repositories: {"user/name": Repository}.
        files: {path: bytes}, for plain addresses: `hub.address(path)`. Here and in the
            repositories, a `DiskBody` may be in the place of bytes.
        faults: Functions of (handler, kind), first come first served. Each returns
            what answers a request in place of the Hub, once, or None to let it pass
            and be asked again. `kind` is "head", "body", "file" or "api".
        requests: (method, path) of every request.
        tokens: Valid ones.
        xet: Address of a Xet store.
        xet_hashes: {SHA-256: name in that store}.
    """

    def __init__(self):
        self.repositories, self.files = {}, {}
        self.faults, self.lock = [], threading.Lock()
        self.requests, self.tokens = [], {"good"}
        self.xet, self.xet_hashes = None, {}
        self.closed = False
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(
            target=self.server.serve_forever, args=(0.02,), daemon=True
        ).start()
        self.port = self.server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.other_host = f"http://localhost:{self.port}"

    def add(self, name, files, **options):
        """Makes a repository of {file name: bytes}."""
        self.repositories[name] = Repository(files, **options)
        return self.repositories[name]

    def address(self, path):
        """URL of one of `files`."""
        return f"{self.endpoint}/files/{path}"

    def spend(self, fault):
        """Removes a fault for later requests; returns whether this request gets it."""
        with self.lock:
            there = fault in self.faults
            if there:
                self.faults.remove(fault)
        return there

    def content(self, path):
        """The body at a path of `files` or of a repository's large file, or None."""
        folder, _, name = path.lstrip("/").partition("/")
        if folder == "files":
            return self.files.get(urllib.parse.unquote(name))
        contents = {
            known_sha256(body): body
            for repository in self.repositories.values()
            for files in repository.commits.values()
            for body in files.values()
        }
        return contents.get(name)

    def count(self, method, part=""):
        """Number of requests."""
        return sum(m == method and part in path for m, path in self.requests)

    def close(self):
        """Stops the server."""
        self.closed = True
        self.server.shutdown()
        self.server.server_close()


class Repository:
    """Commits of one repository: {commit: {file name: bytes}}."""

    def __init__(self, files=(), private=False, gated=False):
        self.commits, self.branches = {}, {}
        self.private, self.gated = private, gated
        self.commit(dict(files))

    def commit(self, files, branch="main"):
        """Adds a commit with these files."""
        state = repr(sorted(files.items())) + str(len(self.commits))
        commit = hashlib.sha1(state.encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit

    def find(self, revision):
        """Commit of a branch or commit, or None."""
        revision = urllib.parse.unquote(revision)
        found = self.branches.get(revision, revision)
        return found if found in self.commits else None

    @property
    def files(self):
        """The files of the branch main."""
        return self.commits[self.branches["main"]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self._serve("HEAD")

    def do_GET(self):
        self._serve("GET")

    def do_POST(self):
        self._serve("POST")

    def do_PUT(self):
        self._serve("PUT")

    def do_DELETE(self):
        self._serve("DELETE")

    def _serve(self, method):
        if self.hub.closed:  # a connection that was kept alive
            self.close_connection = True
            return None
        self.path = urllib.parse.urlsplit(self.path).path
        self.query = urllib.parse.urlsplit(self.requestline.split()[1]).query
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.hub.requests.append((method, self.path))
        routes = (
            (r"/files/(.+)", "file", self._file),
            (r"/content/(\w+)", "body", self._content),
            (r"/([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)", "head", self._resolve),
            (r"/([\w.-]+/[\w.-]+)\.git/info/lfs/(.+)", "api", self._lfs),
            (r"/uploads/(\w+)", "api", self._upload),
            (r"/api/models/([\w.-]+/[\w.-]+)(/.*)?", "api", self._model),
            (r"/api/(repos/create|whoami-v2|validate-yaml)", "api", self._account),
        )
        for pattern, kind, answer in routes:
            if found := re.fullmatch(pattern, self.path):
                for fault in list(self.hub.faults):
                    instead = fault(self, kind)
                    if instead and self.hub.spend(fault):
                        return instead()
                return answer(*found.groups())
        return self.send(404)

    def send(self, status, body=b"", first=0, **headers):
        """An answer; keywords are headers, `_` for `-`; without a body for HEAD."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault("Content_Type", "application/json")
        self.send_response(status)
        headers.setdefault("Content_Length", length(body))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            for piece in pieces(body, first):
                self.wfile.write(piece)

    def send_range(self, body, **headers):
        """A file, or the part of it that was asked for."""
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if not wanted:
            return self.send(200, body, **headers)
        first = int(wanted[1])
        end = length(body)
        headers["Content_Range"] = f"bytes {first}-{end - 1}/{end}"
        return self.send(206, body, first, Content_Length=end - first, **headers)

    def _file(self, path):
        body = self.hub.content(self.path)
        if body is None:
            return self.send(404)
        digest = base64.b64encode(md5(body)).decode()
        return self.send_range(body, x_goog_hash=f"crc32c=AAAAAA==,md5={digest}")

    def _content(self, digest):
        body = self.hub.content(self.path)
        return self.send(404) if body is None else self.send_range(body)

    def _refused(self, repository):
        """Sends an error if the repository may not be read; returns whether it did."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token not in self.hub.tokens:
            message = "Invalid credentials in Authorization header"
            self.send(401, X_Error_Message=message)
        elif repository is None or (repository.private and not token):
            self.send(401, X_Error_Code="RepoNotFound", X_Error_Message="not found")
        elif repository.gated:
            self.send(403, X_Error_Code="GatedRepo", X_Error_Message="gated")
        else:
            return False
        return True

    def _resolve(self, name, revision, path):
        repository = self.hub.repositories.get(name)
        if self._refused(repository):
            return None
        commit = repository.find(revision)
        if commit is None:
            return self.send(404, X_Error_Code="RevisionNotFound")
        body = repository.commits[commit].get(urllib.parse.unquote(path))
        if body is None:
            code = {"X_Error_Code": "EntryNotFound", "X_Repo_Commit": commit}
            return self.send(404, **code)
        if not path.endswith(LARGE):
            blob = b"blob %d\0" % len(body) + body
            tag = hashlib.sha1(blob).hexdigest()
            return self.send_range(body, ETag=f'"{tag}"', X_Repo_Commit=commit)
        digest = sha256(body)
        in_xet = {}
        if name_there := self.hub.xet_hashes.get(digest):
            token = f"{self.hub.endpoint}/api/models/{name}/xet-read-token/{commit}"
            in_xet = {"X_Xet_Hash": name_there, "Link": f'<{token}>; rel="xet-auth"'}
        return self.send(
            302,
            **in_xet,
            X_Repo_Commit=commit,
            X_Linked_Etag=f'"{digest}"',
            X_Linked_Size=length(body),
            Location=f"{self.hub.other_host}/content/{digest}",
        )

    def _model(self, name, rest):
        repository = self.hub.repositories.get(name)
        if self._refused(repository):
            return None
        action, _, tail = (rest or "").lstrip("/").partition("/")
        if action in ("", "revision"):
            commit = repository.find(tail or "main")
            if commit is None:
                return self.send(404, X_Error_Code="RevisionNotFound")
            return self.send(200, self._info(name, repository, commit))
        action = action.replace("-", "_")
        return getattr(self, f"_model_{action}")(name, repository, tail)

    def _info(self, name, repository, commit):
        siblings = [
            {
                "rfilename": path,
                "size": length(body),
                "lfs": {
                    "sha256": sha256(body),
                    "size": length(body),
                    "pointerSize": 134,
                },
            }
            for path, body in repository.commits[commit].items()
        ]
        return {
            "id": name,
            "sha": commit,
            "siblings": siblings,
            "tags": [],
            "cardData": _metadata(repository.commits[commit].get("README.md")),
            "private": repository.private,
        }

    def _model_xet_read_token(self, name, repository, tail):
        headers = {
            "X_Xet_Cas_Url": self.hub.xet,
            "X_Xet_Access_Token": "token",
            "X_Xet_Token_Expiration": int(time.time()) + 3600,
        }
        names = ("casUrl", "accessToken", "exp")
        return self.send(200, dict(zip(names, headers.values())), **headers)

    def _model_tree(self, name, repository, tail):
        commit = repository.find(tail.split("/")[0])
        entries = [
            {"type": "file", "path": path, "oid": "0" * 40, "size": length(body)}
            for path, body in repository.commits[commit].items()
        ]
        return self.send(200, entries)

    def _model_preupload(self, name, repository, tail):
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(self.body)["files"]
        ]
        return self.send(200, {"files": files})

    def _model_branch(self, name, repository, tail):
        repository.branches[tail] = repository.branches["main"]
        return self.send(200, {})

    def _model_commit(self, name, repository, tail):
        branch = urllib.parse.unquote(tail)
        pull = "create_pr=1" in self.query
        files = dict(repository.commits[repository.find(branch)])
        for line in self.body.decode().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.files[f"lfs/{value['oid']}"]
            elif entry["key"] == "deletedFile":
                files.pop(value["path"], None)
        commit = repository.commit(files, "refs/pr/1" if pull else branch)
        url = f"{self.hub.endpoint}/{name}"
        answer = {"commitUrl": f"{url}/commit/{commit}", "commitOid": commit}
        answer["pullRequestUrl"] = f"{url}/discussions/1" if pull else None
        return self.send(200, answer)

    def _lfs(self, name, rest):
        objects = []
        for one in json.loads(self.body)["objects"]:
            href = {"href": f"{self.hub.endpoint}/uploads/{one['oid']}"}
            objects.append({**one, "actions": {"upload": href}})
        return self.send(200, {"transfer": "basic", "objects": objects})

    def _upload(self, digest):
        self.hub.files[f"lfs/{digest}"] = self.body
        return self.send(200)

    def _account(self, action):
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in self.hub.tokens:
            message = "Invalid credentials in Authorization header"
            return self.send(401, X_Error_Message=message)
        if action == "whoami-v2":
            access = {"accessToken": {"role": "write"}}
            who = {"type": "user", "name": "me", "orgs": [], "auth": access}
            return self.send(200, who)
        if action == "validate-yaml":
            return self.send(200, {"errors": [], "warnings": []})
        wanted = json.loads(self.body)
        owner = wanted.get("organization") or "me"
        name = f"{owner}/{wanted['name']}"
        if owner != "me":
            message = "You don't have the rights to create a model under this namespace"
            return self.send(403, X_Error_Message=message)
        if name in self.hub.repositories:
            return self.send(409, {"url": f"{self.hub.endpoint}/{name}"})
        private = wanted.get("visibility") == "private" or wanted.get("private")
        self.hub.add(name, {}, private=bool(private))
        return self.send(200, {"url": f"{self.hub.endpoint}/{name}", "name": name})


def _metadata(card):
    """The metadata at the beginning of a README.md, or None if it is not valid."""
    try:
        return split_page((card or b"").decode(errors="replace"))[0]
    except ValueError:
        return None


def in_three_threads(fetch):
    """Results of a function in three threads that run at the same time."""
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(fetch())) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    return results
