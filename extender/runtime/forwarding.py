"""A standby forwards the scheduler's calls to the leader, so that any of several extenders can be called.

kube-scheduler keeps its connections open: through a Service it may stay with one extender for hours, even if another
one leads. The leader's URL is in an annotation of the Lease, where every standby reads it.

Rules of this file
- A call is forwarded once: the receiver of a forwarded call answers it itself, leader or not.
- If the leader does not reply, the standby answers itself: filter, prioritize and preempt from its own state, which is
  the leader's except for the pods of its last calls; bind with an error, after which the scheduler tries again.
- Every call has a time limit. After a failure the leader is not called for a second.
- The leader authenticates with its certificate, the standby with its service account's token. The token is sent over
  TLS only.
"""

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from extender.config.settings import Settings
from extender.observability.lifecycle import PASSED_ON
from extender.observability.logs import REQUEST_ID, FaultLog

LOG: Final = logging.getLogger(__name__)
CONNECT_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 1.0
AT_ONCE: Final = 32
MAX_REPLY_BYTES: Final = 64 << 20
"""A filter reply repeats the names of the nodes, with reasons. 5,000 nodes are about 1 MB."""


class Leader:
    """Calls the leader. Thread-safe. *url*: its current URL; empty if unknown, or if this process leads."""

    def __init__(self, settings: Settings, url: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._url, self._clock = settings, url, clock
        self._seconds: Final[Mapping[str, float]] = {
            "/scheduler/filter": settings.filter_seconds + 0.5,
            "/scheduler/prioritize": settings.filter_seconds + 0.5,
            "/scheduler/preempt": settings.preempt_seconds + 0.5,
            "/scheduler/bind": 2 * settings.bind_seconds,
        }
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="leader")
        self._lock = threading.Lock()
        self._pool: tuple[str, urllib3.PoolManager] | None = None
        self._again_at = float("-inf")
        self._faults = FaultLog(LOG, "forwarding to the leader", clock)

    def takes(self, path: str) -> bool:
        """Whether a call to *path* must be forwarded now."""
        return path in self._seconds and bool(self._url()) and self._clock() >= self._again_at

    async def answer(self, path: str, body: bytes) -> bytes | None:
        """The leader's reply. None if there was none."""
        headers = {"Content-Type": "application/json", PASSED_ON: "1", "X-Request-Id": REQUEST_ID.get()}
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, path, headers, body)

    def close(self) -> None:
        """Take no more calls. Calls in progress have a time limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _call(self, path: str, headers: dict[str, str], body: bytes) -> bytes | None:
        url, seconds = self._url(), self._seconds[path]
        if not url:
            return None
        deadline = self._clock() + seconds
        try:
            headers |= self._token(url)
            reply = self._connections(url).request(
                "POST",
                url + path,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds),
                redirect=False,
                retries=False,
                preload_content=False,
            )
            with reply:
                answer = self._read(reply, deadline)
        except (HTTPError, OSError, ValueError) as error:
            self._again_at = self._clock() + PAUSE_SECONDS
            self._forget()
            self._faults.failed("leader=%s path=%s reason=%r", url, path, str(error))
            return None
        self._faults.ended()
        return answer

    def _read(self, reply: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := reply.read1(1 << 18):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_REPLY_BYTES or self._clock() > deadline:
                raise OSError(f"the reply is too long or too slow ({size} bytes so far)")
        answer = b"".join(pieces)
        if reply.status != HTTPStatus.OK:
            raise OSError(f"status {reply.status}: {answer[:200]!r}")
        return answer

    def _token(self, url: str) -> dict[str, str]:
        """The Authorization header. Read for each call, because the kubelet renews the token."""
        path = self._settings.leader_token_file
        if path is None or urlsplit(url).scheme != "https":
            return {}
        return {"Authorization": f"Bearer {path.read_text().strip()}"}

    def _connections(self, url: str) -> urllib3.PoolManager:
        """Connections to the leader at *url*. After a change of leader or a failure the CA is read again."""
        with self._lock:
            if self._pool is None or self._pool[0] != url:
                options: dict[str, Any] = {}
                if urlsplit(url).scheme == "https":
                    name = self._settings.leader_server_name or None
                    options = {
                        "ssl_context": ssl.create_default_context(cafile=self._settings.leader_ca_file),
                        "server_hostname": name,
                        "assert_hostname": name,
                    }
                self._pool = (url, urllib3.PoolManager(num_pools=1, maxsize=AT_ONCE, **options))
            return self._pool[1]

    def _forget(self) -> None:
        with self._lock:
            self._pool = None
