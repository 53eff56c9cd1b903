"""GET /docs: Swagger UI with the scripts of the package `fastapi_offline`, so that it works without internet access.

Rules of this file
- The page may load from and connect to this service only, and no other site may frame it. It holds no data: its script
  (web/js/apidocs.js) fetches the document with the caller's credentials.
- Inline styles are allowed, because Swagger UI sets them at run time.
"""

from importlib.resources import files
from typing import Final

from fastapi import FastAPI, Request, Response

from extender.api.http.page import HEADERS, PageFiles

PATH: Final = "/docs"
ASSETS: Final = "/docs/assets"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {**HEADERS, "Content-Security-Policy": _POLICY, "X-Frame-Options": "DENY"}


def install(app: FastAPI) -> None:
    """Add the page and its files to *app*, which was created without a docs page."""
    app.mount(ASSETS, PageFiles(str(files("fastapi_offline") / "static"), _HEADERS), name="docs-assets")
    page = PageFiles(str(files("extender") / "web"), _HEADERS)

    @app.get(PATH, include_in_schema=False)
    async def docs(request: Request) -> Response:
        return await page.get_response("docs.html", request.scope)
