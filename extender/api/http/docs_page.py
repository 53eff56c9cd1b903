"""GET /docs: Swagger UI with the scripts of the package `fastapi_offline`, so that it works without internet access.

Rules of this file
- The page may load from and connect to this service only, and no other site may frame it. Its inline script is allowed
  by its hash.
- Inline styles are allowed, because Swagger UI sets them at run time.
"""

import base64
import hashlib
import re
from importlib.resources import files
from typing import Final

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse

from extender.api.http.page import PageFiles

PATH: Final = "/docs"
ASSETS: Final = "/docs/assets"
_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_HEADERS: Final = {"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


def install(app: FastAPI) -> None:
    """Add the page and its files to *app*, which was created without a docs page."""
    app.mount(ASSETS, PageFiles(str(files("fastapi_offline") / "static"), _HEADERS), name="docs-assets")
    page = bytes(
        get_swagger_ui_html(
            openapi_url=app.openapi_url or "",
            title=f"{app.title}: the API",
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon.png",
        ).body
    )
    headers = {**_HEADERS, "Content-Security-Policy": _policy(page)}

    @app.get(PATH, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page, headers=headers)


def _policy(page: bytes) -> str:
    """The Content-Security-Policy of the page: scripts from our files, and the inline scripts by their hashes."""
    hashes = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _SCRIPT.findall(page))
    scripts = " ".join(("'self'", *(f"'sha256-{digest}'" for digest in hashes)))
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
