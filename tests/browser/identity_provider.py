"""An OpenID provider on this machine that knows one person and asks for no password."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "memrl"


@contextmanager
def identity_provider(person: dict[str, str]) -> Iterator[str]:
    """Serve the authorization code flow for `person` (claims such as email); gives the provider's address."""
    key = RSAKey.generate_key(2048, {"kid": "only", "use": "sig", "alg": "RS256"})
    nonces: dict[str, str] = {}

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, asked = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            if path == "/.well-known/openid-configuration":
                self._tell(
                    {
                        "issuer": address,
                        "authorization_endpoint": f"{address}/authorize",
                        "token_endpoint": f"{address}/token",
                        "jwks_uri": f"{address}/keys",
                        "response_types_supported": ["code"],
                        "subject_types_supported": ["public"],
                        "id_token_signing_alg_values_supported": ["RS256"],
                    }
                )
            elif path == "/keys":
                self._tell({"keys": [key.as_dict(private=False)]})
            elif path == "/authorize":
                code = f"code-{len(nonces)}"
                nonces[code] = asked.get("nonce", [""])[0]
                back = urlencode({"code": code, "state": asked["state"][0]})
                self.send_response(302)
                self.send_header("Location", f"{asked['redirect_uri'][0]}?{back}")
                self.end_headers()
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            now = int(time.time())
            claims = {
                "iss": address, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 600,
                "nonce": nonces[sent["code"][0]], **person,
            }  # fmt: skip
            token = jwt.encode({"alg": "RS256", "kid": "only"}, claims, key)
            self._tell({"access_token": "unused", "token_type": "Bearer", "expires_in": 600, "id_token": token})

        def _tell(self, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield address
    finally:
        server.shutdown()
