"""The web page: static files, with a policy that lets the page connect to this service only."""

import mimetypes
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from starlette.staticfiles import StaticFiles

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS: Final = {
    "Cache-Control": "no-cache",  # the browser checks each time, so that files of two releases are never mixed
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
mimetypes.add_type("text/javascript", ".js")  # whatever the machine's own table says


class PageFiles(StaticFiles):
    """The files of a directory, each sent with *headers*."""

    def __init__(self, directory: str, headers: Mapping[str, str]) -> None:
        super().__init__(directory=directory)
        self._headers: Final = headers

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """The file, or 304 if the client has it."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(self._headers)
        return response


def page_router() -> APIRouter:
    """GET / and /web/FILE. Not in the OpenAPI document, because they are not meant for programs."""
    router, page = APIRouter(include_in_schema=False), PageFiles(str(files("extender") / "web"), HEADERS)
    router.mount("/web", page)

    @router.get("/")
    async def get_page(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    return router
