"""The web page: static files, with a policy that lets the page connect to this service only.

All files are read once, when the service is created. The path of a request is a dictionary key and never a file path.
"""

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Header, HTTPException, Response

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS: Final = {
    "Cache-Control": "no-cache",  # the browser checks each time, so that files of two releases are never mixed
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX: Final = "index.html"


class _Asset(NamedTuple):
    content: bytes
    media_type: str
    etag: str


def page_router() -> APIRouter:
    """GET / and /web/FILE. Not in the OpenAPI document, because they are not meant for programs."""
    router = APIRouter(include_in_schema=False)
    assets = dict(_read(files("extender") / "web"))

    @router.get("/")
    async def get_page(if_none_match: Annotated[str | None, Header()] = None) -> Response:
        return _send(assets[_INDEX], if_none_match)

    @router.get("/web/{path:path}")
    async def get_asset(path: str, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        asset = assets.get(path)
        if asset is None:
            raise HTTPException(404, "no such file")
        return _send(asset, if_none_match)

    return router


def _send(asset: _Asset, if_none_match: str | None) -> Response:
    headers = {**_HEADERS, "ETag": asset.etag}
    if if_none_match is not None and asset.etag in if_none_match:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)


def _read(directory: Traversable, prefix: str = "") -> Iterator[tuple[str, _Asset]]:
    """The files below *directory* that a browser may request, by path."""
    for entry in directory.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _read(entry, f"{path}/")
        elif media_type := _MEDIA_TYPES.get(f".{entry.name.rpartition('.')[2]}"):
            content = entry.read_bytes()
            yield path, _Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:16]}"')
