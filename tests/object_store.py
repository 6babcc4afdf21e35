"""A small S3-compatible server on a free loopback port: buckets in memory, signatures checked, whole objects only."""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest

MODIFIED = "2030-01-02T03:04:05.000Z"
MODIFIED_IN_HEADERS = "Wed, 02 Jan 2030 03:04:05 GMT"


@dataclass
class ObjectStore:
    """What the server holds, by bucket and key, and the requests that it was sent, as (method, path)."""

    access_key: str
    secret: str
    address: str = ""
    buckets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    is_closed_to_writers: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def object_store(access_key: str, secret: str) -> Iterator[ObjectStore]:
    """Serve an empty store that lets in who signs with `access_key` and `secret`."""
    store = ObjectStore(access_key, secret)
    handler = type("Answering", (_Answer,), {"store": store})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        store.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()


def set_environment(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `store` the only one that this process and those it starts can reach."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.address)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.secret)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


class _Answer(BaseHTTPRequestHandler):
    store: ObjectStore
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        self._handle()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        pass

    def _handle(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        bucket, _, key = unquote(parts.path).removeprefix("/").partition("/")
        with self.store.lock:
            self.store.requests.append((self.command, self.path))
            if fault := _signature_fault(self, self.store):
                return self._refuse(403, fault)
            if self.store.is_closed_to_writers and self.command in ("PUT", "DELETE", "POST"):
                return self._refuse(403, "AccessDenied")
            objects = self.store.buckets.get(bucket)
            if objects is None:
                return self._refuse(404, "NoSuchBucket")
            if not key:
                return self._delete_many(objects) if "delete" in query else self._list(objects, query)
            if query:
                return self._refuse(501, "NotImplemented")
            if self.command == "PUT":
                return self._put(objects, key)
            if self.command == "DELETE":
                objects.pop(key, None)
                return self._answer(204)
            return self._get(objects, key)

    def _put(self, objects: dict[str, bytes], key: str) -> None:
        if self.headers.get("If-None-Match") == "*" and key in objects:
            return self._refuse(412, "PreconditionFailed")
        source = unquote(self.headers.get("x-amz-copy-source", ""))
        if source:
            objects[key] = objects[source.removeprefix("/").partition("/")[2]]
            return self._answer(200, b"<CopyObjectResult><ETag>copied</ETag></CopyObjectResult>")
        objects[key] = self.body
        self._answer(200, tag=_tag(self.body))

    def _get(self, objects: dict[str, bytes], key: str) -> None:
        if key not in objects:
            return self._refuse(404, "NoSuchKey")
        data = objects[key]
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if not asked:
            return self._answer(200, data, _tag(data))
        first, _, last = asked.partition("-")
        begin = int(first) if first else max(0, len(data) - int(last))
        end = min(len(data), int(last) + 1) if first and last else len(data)
        self._answer(206, data[begin:end], _tag(data), f"bytes {begin}-{end - 1}/{len(data)}")

    def _list(self, objects: dict[str, bytes], query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        found, folders = [], set()
        for key in sorted(objects):
            if not key.startswith(prefix) or key <= query.get("start-after", ""):
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                found.append(key)
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{MODIFIED}</LastModified><ETag>{_tag(objects[key])}"
            f"</ETag><Size>{len(objects[key])}</Size></Contents>"
            for key in found
        )
        rows += "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode())

    def _delete_many(self, objects: dict[str, bytes]) -> None:
        keys = [e.text or "" for e in ElementTree.fromstring(self.body).iter() if e.tag.rpartition("}")[2] == "Key"]
        for key in keys:
            objects.pop(key, None)
        rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{rows}</DeleteResult>".encode())

    def _refuse(self, status: int, code: str) -> None:
        # The address that was asked for comes back, as with real stores: no sentence may repeat it.
        self._answer(status, f"<Error><Code>{code}</Code><Resource>{escape(self.path)}</Resource></Error>".encode())

    def _answer(self, status: int, data: bytes = b"", tag: str = "", part: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", MODIFIED_IN_HEADERS)
        if tag:
            self.send_header("ETag", tag)
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _signature_fault(request: BaseHTTPRequestHandler, store: ObjectStore) -> str:
    """The code of S3 for what is wrong with a request's signature (AWS Signature Version 4); "" when nothing is."""
    scheme, _, reported = request.headers.get("Authorization", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return "AccessDenied"
    fields = dict(part.strip().split("=", 1) for part in reported.split(","))
    access_key, *scope = fields["Credential"].split("/")
    if access_key != store.access_key:
        return "InvalidAccessKeyId"
    path, _, query = request.path.partition("?")
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(query, keep_blank_values=True))
    names = fields["SignedHeaders"].split(";")
    lines = [request.command, path, "&".join(f"{k}={v}" for k, v in pairs)]
    lines += [f"{name}:{' '.join(request.headers.get(name, '').split())}" for name in names]
    lines += ["", ";".join(names), request.headers.get("x-amz-content-sha256", "")]
    hashed = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    signed = "\n".join(["AWS4-HMAC-SHA256", request.headers.get("x-amz-date", ""), "/".join(scope), hashed])
    key = f"AWS4{store.secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return (
        "" if hmac.new(key, signed.encode(), "sha256").hexdigest() == fields["Signature"] else "SignatureDoesNotMatch"
    )
