"""The few pages of the Hub's HTTP interface that its client asks for, as a server of its own.

    python fake_hub.py FOLDER        prints its address; every request goes to FOLDER/requests.txt

The token `hf_writer` may write, `hf_reader` may not. Weights go by Git LFS, all else inside of a commit, as there. What
nobody thought of is answered with 501 and shows in the list of requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

TOKENS = {"hf_writer": "writer", "hf_reader": "reader"}


class Repository:
    """Commits are whole trees; large files are known by their SHA-256."""

    def __init__(self, private: bool):
        self.private = private
        self.commits: list[dict[str, bytes]] = [{}]

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1]

    @property
    def sha(self) -> str:
        return hashlib.sha1(f"{id(self)} {len(self.commits)}".encode()).hexdigest()


REPOSITORIES: dict[str, Repository] = {}
LARGE: dict[str, bytes] = {}


class Hub(BaseHTTPRequestHandler):
    """One request; `folder` is the server's."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def answer(self, status: int, body: object = None, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    @property
    def user(self) -> str | None:
        return TOKENS.get(self.headers.get("Authorization", "").removeprefix("Bearer "))

    def handle_one(self) -> None:
        path = unquote(urlsplit(self.path).path)
        with (self.folder / "requests.txt").open("a") as log:
            log.write(f"{self.command} {path}\n")
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        for command, pattern, name in PAGES:
            if self.command in command.split() and (found := re.fullmatch(pattern, path)):
                getattr(self, name)(body, *found.groups())
                return
        self.answer(501, {"error": f"not in this fake: {self.command} {path}"})

    do_GET = do_HEAD = do_POST = do_PUT = handle_one

    def whoami(self, body: bytes) -> None:
        if self.user is None:
            self.answer(401, {"error": "Invalid credentials"})
        else:
            self.answer(200, {"type": "user", "name": self.user, "auth": {"accessToken": {"role": "write"}}})

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        owner = asked.get("organization") or self.user
        name = f"{owner}/{asked['name']}"
        if self.user is None:
            self.answer(401, {"error": "Invalid credentials"})
        elif self.user != "writer" or owner != "writer":
            self.answer(403, {"error": "You don't have the rights to create a model under this namespace"})
        else:
            known = name in REPOSITORIES
            private = asked.get("visibility") == "private" or bool(asked.get("private"))  # older clients say the latter
            REPOSITORIES.setdefault(name, Repository(private))
            host = self.headers["Host"]
            self.answer(409 if known else 200, {"url": f"http://{host}/{name}", "name": name})

    def validate_yaml(self, body: bytes) -> None:
        import yaml

        found = re.match(r"---\n(.*?)\n---\n", json.loads(body)["content"], re.S)
        try:
            fine = isinstance(yaml.safe_load(found[1] if found else ""), dict)
        except yaml.YAMLError as error:
            fine, found = False, error
        faults = [] if fine else [{"message": str(found)}]
        self.answer(200 if fine else 400, {"errors": faults, "warnings": []})

    def repository(self, name: str, write: bool = False) -> Repository | None:
        """Answer here where it may not be seen; a stranger is not told what is private and what is not there."""
        repository = REPOSITORIES.get(name)
        if repository is None or (repository.private and self.user != "writer"):
            self.answer(404 if self.user else 401, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return None
        if write and self.user != "writer":
            self.answer(403, {"error": "Forbidden"})
            return None
        return repository

    def info(self, body: bytes, name: str) -> None:
        if (repository := self.repository(name)) is not None:
            files = [{"rfilename": path, "size": len(data)} for path, data in repository.files.items()]
            about = {"_id": name, "id": name, "sha": repository.sha, "private": repository.private, "siblings": files}
            self.answer(200, {**about, "tags": [], "downloads": 0, "likes": 0})

    def tree(self, body: bytes, name: str) -> None:
        if (repository := self.repository(name)) is not None:
            files = repository.files.items()
            rows = [{"type": "file", "path": p, "size": len(d), "oid": hashlib.sha1(d).hexdigest()} for p, d in files]
            self.answer(200, rows)

    def preupload(self, body: bytes, name: str) -> None:
        if self.repository(name, write=True) is not None:
            files = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": p, "uploadMode": "lfs" if p.endswith(".safetensors") else "regular"} for p in files]
            self.answer(200, {"files": [{**mode, "shouldIgnore": False} for mode in modes]})

    def lfs_batch(self, body: bytes, name: str) -> None:
        if self.repository(name, write=True) is not None:
            rows, host = [], self.headers["Host"]
            for asked in json.loads(body)["objects"]:
                upload = {"upload": {"href": f"http://{host}/lfs/{asked['oid']}"}}
                rows.append({**asked, **({} if asked["oid"] in LARGE else {"actions": upload})})
            self.answer(200, {"transfer": "basic", "objects": rows})

    def lfs_put(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            self.answer(400, {"error": "another file than announced"})
            return
        LARGE[oid] = body
        self.answer(200)

    def commit(self, body: bytes, name: str) -> None:
        if (repository := self.repository(name, write=True)) is None:
            return
        files = dict(repository.files)
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = LARGE[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        repository.commits.append(files)
        url = f"http://{self.headers['Host']}/{name}/commit/{repository.sha}"
        self.answer(200, {"success": True, "commitUrl": url, "commitOid": repository.sha})

    def resolve(self, body: bytes, name: str, path: str) -> None:
        if (repository := self.repository(name)) is None:
            return
        data = repository.files.get(path)
        if data is None:
            self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
        else:
            self.answer(200, data, ETag=f'"{hashlib.sha1(data).hexdigest()}"', X_Repo_Commit=repository.sha)

    def log_message(self, format: str, *args: object) -> None:
        pass


NAME = r"([\w.-]+/[\w.-]+)"
PAGES = (
    ("GET", "/api/whoami-v2", "whoami"),
    ("POST", "/api/repos/create", "create"),
    ("POST", "/api/validate-yaml", "validate_yaml"),
    ("GET", rf"/api/models/{NAME}(?:/revision/\w+)?", "info"),
    ("GET", rf"/api/models/{NAME}/tree/\w+", "tree"),
    ("POST", rf"/api/models/{NAME}/preupload/\w+", "preupload"),
    ("POST", rf"/{NAME}\.git/info/lfs/objects/batch", "lfs_batch"),
    ("PUT", r"/lfs/(\w+)", "lfs_put"),
    ("POST", rf"/api/models/{NAME}/commit/\w+", "commit"),
    ("GET HEAD", rf"/{NAME}/resolve/\w+/(.+)", "resolve"),
)

if __name__ == "__main__":
    Hub.folder = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
