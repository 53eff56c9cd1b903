"""Asks an extender: one that runs somewhere, or one of this process that knows nothing but report files.

Laws
- Both ways go through the same routes, so the answers are the same.
- What goes wrong is a `click.ClickException` in plain words, never a traceback.
"""

import asyncio
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click
import httpx
import orjson

F = TypeVar("F", bound=Callable[..., Any])
Params = Mapping[str, str | int | list[str]]
TIMEOUT_SECONDS: Final = 300.0
NDJSON: Final = "application/x-ndjson"
_FOREVER: Final = 10.0 * 365 * 86_400
_SERVER_NAME: Final = "numa_extender.server_name"
"""In the context of a command: the name that the server's certificate must have."""
_HOW_TO_PROVE: Final = (
    "Show, with --token-file, a token made for this extender, of an account with the ClusterRole numa-extender-reader: "
    "kubectl -n numa-extender create token numa-reader --audience=numa-extender > token"
)


class Asker(Protocol):
    """Sends requests; a reply that is no success is a ClickException."""

    def get(self, path: str, params: Params | None = None) -> Any:  # noqa: ANN401 - JSON
        """The JSON reply to a GET."""

    def post(self, path: str, question: object) -> Any:  # noqa: ANN401 - JSON
        """The JSON reply to a question."""

    def lines(self, path: str, question: object) -> Iterator[Any]:
        """The JSON lines of a reply, as they come."""


def _remember_server_name(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    context.meta[_SERVER_NAME] = name


def asking_options(command: F) -> F:
    """The options that say whom to ask: `server`, `token_file`, `ca_file`, `reports`.

    `--server-name` is no argument of the command; `asking` finds it in the command's context.
    """
    for option in reversed(
        (
            click.option(
                "--server",
                envvar="NUMA_EXTENDER_SERVER",
                show_envvar=True,
                default="http://127.0.0.1:9600",
                show_default=True,
                metavar="URL",
                help="The extender to ask.",
            ),
            click.option(
                "--token-file",
                envvar="NUMA_EXTENDER_TOKEN_FILE",
                show_envvar=True,
                type=click.Path(dir_okay=False, path_type=Path),
                help="File with the bearer token to show.",
            ),
            click.option(
                "--ca-file",
                envvar="NUMA_EXTENDER_CA_FILE",
                show_envvar=True,
                type=click.Path(dir_okay=False, path_type=Path),
                help="CA certificates that the server's must be signed by.",
            ),
            click.option(
                "--server-name",
                envvar="NUMA_EXTENDER_SERVER_NAME",
                show_envvar=True,
                metavar="NAME",
                expose_value=False,
                callback=_remember_server_name,
                help="The name in the server's certificate, where it is not the host of the URL: behind a port-forward "
                "numa-extender.numa-extender.svc.",
            ),
            click.option(
                "--report",
                "reports",
                multiple=True,
                type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
                help="Ask no server: answer from this file, as `numa-node-exporter report` prints it. Repeatable.",
            ),
        )
    ):
        command = option(command)
    return command


@contextmanager
def asking(*, server: str, token_file: Path | None, ca_file: Path | None, reports: tuple[Path, ...]) -> Iterator[Asker]:
    """Whom the options name; files win."""
    if reports:
        yield offline(reports)
        return
    headers = {"Authorization": f"Bearer {_text(token_file)}"} if token_file is not None else {}
    try:
        verify = ssl.create_default_context(cafile=str(ca_file)) if ca_file is not None else True
    except OSError as error:
        raise click.ClickException(f"{ca_file}: {error.strerror or error}") from None
    context = click.get_current_context(silent=True)
    name = context.meta.get(_SERVER_NAME) if context is not None else None

    def expect_name(request: httpx.Request) -> None:
        request.extensions = {**request.extensions, "sni_hostname": name}

    hooks = {"request": [expect_name]} if name else {}
    with httpx.Client(
        base_url=server, headers=headers, timeout=TIMEOUT_SECONDS, verify=verify, event_hooks=hooks
    ) as client:
        yield _Remote(client)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class _Remote:
    client: httpx.Client

    def get(self, path: str, params: Params | None = None) -> Any:  # noqa: ANN401
        return self._json("GET", path, params=params)

    def post(self, path: str, question: object) -> Any:  # noqa: ANN401
        return self._json("POST", path, content=orjson.dumps(question), headers={"Content-Type": "application/json"})

    def lines(self, path: str, question: object) -> Iterator[Any]:
        headers = {"Content-Type": "application/json", "Accept": NDJSON}
        with (
            self._reached(),
            self.client.stream("POST", path, content=orjson.dumps(question), headers=headers) as reply,
        ):
            if reply.is_error:
                reply.read()
            _check(reply)
            for line in reply.iter_lines():
                yield _checked(orjson.loads(line))

    def _json(self, method: str, path: str, **parts: Any) -> Any:  # noqa: ANN401
        with self._reached():
            reply = self.client.request(method, path, **parts)
        _check(reply)
        return orjson.loads(reply.content)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.InvalidURL as error:
            raise click.ClickException(f"{self.client.base_url}: {error}") from None
        except httpx.HTTPError as error:
            raise click.ClickException(f"cannot ask {self.client.base_url}: {error}") from None


class _Offline:
    """An extender of this process, spoken to without sockets."""

    def __init__(self, app: Any) -> None:  # noqa: ANN401 - an ASGI application
        self._app = app

    def get(self, path: str, params: Params | None = None) -> Any:  # noqa: ANN401
        return orjson.loads(self._send("GET", path, params=params).content)

    def post(self, path: str, question: object) -> Any:  # noqa: ANN401
        return orjson.loads(self._send("POST", path, json=question).content)

    def lines(self, path: str, question: object) -> Iterator[Any]:
        reply = self._send("POST", path, json=question, headers={"Accept": NDJSON})
        yield from (_checked(orjson.loads(line)) for line in reply.text.splitlines())

    def put(self, path: str, body: bytes) -> None:
        """Hand in a report."""
        self._send("PUT", path, content=body)

    def _send(self, method: str, path: str, **parts: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, **parts)

        reply = asyncio.run(send())
        _check(reply)
        return reply


def offline(reports: tuple[Path, ...]) -> Asker:
    """An extender of this process that holds these reports; raises ClickException for a file that is none."""
    from extender.app import make_app, make_service  # noqa: PLC0415 - half a second that asking a server need not take
    from extender.config.settings import Settings  # noqa: PLC0415

    service = make_service(Settings(stale_after_seconds=_FOREVER, audit_window=1))
    asker = _Offline(make_app(service))
    for file in reports:
        body = _read(file)
        try:
            document = orjson.loads(body)
            name = document["node_name"]
            asker.put(f"/v1/nodes/{name}/report", body)
        except (orjson.JSONDecodeError, TypeError, KeyError):
            raise click.ClickException(f"{file}: not a node report, as `numa-node-exporter report` prints it") from None
        except click.ClickException as error:
            raise click.ClickException(f"{file}: {error.message}") from None
    return asker


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None


def _checked(line: Any) -> Any:  # noqa: ANN401 - JSON
    """The line; raises the words of a problem, with which an answer ends that breaks off."""
    if isinstance(line, dict) and "problem" in line:
        raise click.ClickException(f"the answer is not complete: {line['problem']['detail']}")
    return line


def _check(reply: httpx.Response) -> None:
    """Raise the words of a problem."""
    if reply.is_success:
        return
    try:
        detail = orjson.loads(reply.content)["detail"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        detail = f"{reply.status_code} {reply.reason_phrase}"
    if (wait := reply.headers.get("retry-after")) is not None:
        detail = f"{detail}; try again in {wait} s"
    if reply.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        detail = f"{detail}\n{_HOW_TO_PROVE}"
    raise click.ClickException(str(detail))


def complete_node(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of nodes for the shell's completion; none if no server answers at once."""
    server = ctx.params.get("server") or "http://127.0.0.1:9600"
    try:
        reply = httpx.get(f"{server}/v1/nodes", params={"name": incomplete, "limit": 50}, timeout=1.0)
        return [each["name"] for each in orjson.loads(reply.content)["nodes"] if each["name"].startswith(incomplete)]
    except (httpx.HTTPError, httpx.InvalidURL, orjson.JSONDecodeError, KeyError, TypeError):
        return []
