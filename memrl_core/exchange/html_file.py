"""HTML documents that need nothing but themselves: no network, no other file, and no script but their own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape


def html_document(
    title: str, style: str, style_source: str, body: Iterable[str], scripts: Iterable[str], images: str = ""
) -> str:
    """A whole document whose policy runs `scripts` alone, known by their hashes, and loads nothing from anywhere.

    `style_source` and `images` are the policy's words for styles and images; `body` is HTML already.
    """
    allowed = " ".join(hash_source(script) for script in scripts) or "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {style_source}; "
        f"{f'img-src {images}; ' if images else ''}base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>\n",
        )
    )


def hash_source(text: str) -> str:
    """A script or style as a policy names it: by its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
