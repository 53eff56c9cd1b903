"""Detects requests that a page of another web site made a browser send.

A browser that has a port-forward to this service, or runs on its machine, sends requests on behalf of any page that is
open in it. The page cannot read the replies, but a form or `fetch` with a plain Content-Type gets through. Browsers
mark such requests with headers. kube-scheduler, exporters, curl and other programs send none of these headers.

Rules of this file
- The check runs only where the connection alone is the credential (loopback, a client certificate, `insecure`): a page
  of another site cannot send an Authorization header of its own.
- `Origin` must equal the address that the request itself names. `null` does not.
- `Sec-Fetch-Site` must be `same-origin` or `none` (typed, or a bookmark). A link from another site may open a document.
- Requests that change something must not have one of the three media types that a form can send.
"""

from collections.abc import Iterable
from typing import Final

from extender.identity import AccessScope

FORMS: Final = frozenset({b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"})
"""Media types that a page may send to other sites without a preflight request (CORS-safelisted)."""
CHANGES: Final = frozenset({AccessScope.SCHEDULE, AccessScope.REPORT})
_NAMES: Final = frozenset(
    {b"host", b"origin", b"content-type", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"}
)


def foreign(headers: Iterable[tuple[bytes, bytes]], *, method: str, scheme: str, needed: AccessScope) -> str:
    """Why the request may come from a page of another site. Empty if it does not.

    *headers* have lower-case names, as in ASGI. *scheme* is `http` or `https`.
    """
    found = {name: value for name, value in headers if name in _NAMES}
    origin = found.get(b"origin")
    if origin is not None and origin.lower() != scheme.encode() + b"://" + found.get(b"host", b"").lower():
        return "its Origin is another site"
    site = found.get(b"sec-fetch-site", b"none")
    opens_document = found.get(b"sec-fetch-mode") == b"navigate" and found.get(b"sec-fetch-dest") == b"document"
    if site not in (b"same-origin", b"none") and not (opens_document and method in ("GET", "HEAD")):
        return "its Sec-Fetch-Site is another site"
    media_type = found.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if needed in CHANGES and media_type in FORMS:
        return f"its Content-Type is {media_type.decode()}, which a form of any page can send: use application/json"
    return ""
