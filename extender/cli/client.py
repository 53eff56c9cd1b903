"""The client of the commands: for a running extender, or for one in this process that has only report files.

Rules of this file
- Both go through the same routes, so the answers are the same.
- An error is a `click.ClickException` that names the wrong option or variable, never a traceback.
"""

import asyncio
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click
import httpx
import orjson
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])
Params = Mapping[str, str | int | list[str]]
DEFAULT_SERVER: Final = "http://127.0.0.1:9600"
TIMEOUT_SECONDS: Final = 300.0
COMPLETE_SECONDS: Final = 1.0
NDJSON: Final = "application/x-ndjson"
_FOREVER: Final = 10.0 * 365 * 86_400
_SERVER_NAME: Final = "numa_extender.server_name"
"""Key in a command's context: the name that the server's certificate must have."""
_HOW_TO_AUTHENTICATE: Final = (
    "Send a token for this extender with --token-file, of an account with the ClusterRole numa-extender-reader: "
    "kubectl -n numa-extender create token numa-reader --audience=numa-extender > token"
)


class ExtenderFault(click.ClickException):
    """The extender refused a question. The message begins with the wrong field, if there is one."""


def _keep_server_name(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    context.meta[_SERVER_NAME] = name


_FILE: Final = click.Path(dir_okay=False, path_type=Path)


def _setting(flag: str, **more: Any) -> Callable[[F], F]:
    """An option that a variable of the environment can set as well."""
    variable = f"NUMA_EXTENDER_{flag.removeprefix('--').replace('-', '_').upper()}"
    return click.option(flag, envvar=variable, show_envvar=True, **more)


_OPTIONS: Final = (
    click.option(
        "-o",
        "--output",
        type=click.Choice(("table", "wide", "json", "yaml", "name")),
        default="table",
        show_default=True,
        help="How to print the answer; wide: a table whose lines are not broken; name: nodes or pods, as kubectl does.",
    ),
    _setting("--server", default=DEFAULT_SERVER, show_default=True, metavar="URL", help="URL of the extender."),
    _setting("--token-file", type=_FILE, help="File with the bearer token to send."),
    _setting("--ca-file", type=_FILE, help="CA certificates that verify the server's certificate."),
    _setting(
        "--server-name",
        metavar="NAME",
        expose_value=False,
        callback=_keep_server_name,
        help="The name in the server's certificate, if it is not the host of the URL: behind a port-forward "
        "numa-extender.numa-extender.svc.",
    ),
)
report_option: Final = click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Use no server: answer from this file, as `numa-node-exporter report` prints it. Repeatable.",
)


def server_options(command: F) -> F:
    """The options that name the extender, and `-o`. The command gets an open `ExtenderClient` in place of them.

    `--server-name` is read from the command's context.
    """

    @wraps(command)
    def connected(
        *arguments: object,
        server: str,
        token_file: Path | None,
        ca_file: Path | None,
        output: str,
        reports: tuple[Path, ...] = (),
        **given: object,
    ) -> object:
        http = offline(reports) if reports else _http_client(server, token_file, ca_file, TIMEOUT_SECONDS)
        with closing(http):
            return command(*arguments, client=ExtenderClient(http, output), **given)

    return cast("F", options(*_OPTIONS)(connected))


def client_options(command: F) -> F:
    """As `server_options`, with `--report`, for questions that report files can answer."""
    return report_option(server_options(command))


def options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Adds several options, in this order."""

    def add(command: F) -> F:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add


def _http_client(server: str, token_file: Path | None, ca_file: Path | None, timeout_seconds: float) -> httpx.Client:
    headers = {}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {content(token_file, _as_typed('token_file')).decode().strip()}"
    # To read the certificates of all public authorities takes 40 ms, which only https needs.
    public = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if server.lower().startswith("http:") else True
    try:
        verify = ssl.create_default_context(cafile=str(ca_file)) if ca_file is not None else public
    except OSError as error:
        raise click.ClickException(f"{_as_typed('ca_file')} {ca_file}: {error.strerror or error}") from None
    name = (context := click.get_current_context(silent=True)) and context.meta.get(_SERVER_NAME)

    def expect_name(request: httpx.Request) -> None:
        request.extensions = {**request.extensions, "sni_hostname": name}

    hooks = {"request": [expect_name]} if name else {}
    return httpx.Client(base_url=server, headers=headers, timeout=timeout_seconds, verify=verify, event_hooks=hooks)


def _as_typed(parameter: str) -> str:
    """The flag, or the environment variable if the value is from one."""
    context = click.get_current_context(silent=True)
    if context is not None and context.get_parameter_source(parameter) is ParameterSource.ENVIRONMENT:
        return f"NUMA_EXTENDER_{parameter.upper()}"
    return f"--{parameter.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class ExtenderClient:
    """Sends requests. A reply that is not a success is an `ExtenderFault`. `output`: how to print the answer."""

    http: httpx.Client
    output: str = "table"

    def get(self, path: str, params: Params | None = None) -> Any:  # noqa: ANN401 - JSON
        """The JSON reply to a GET."""
        with self._reached():
            reply = self.http.get(path, params=params)
        _check(reply)
        return orjson.loads(reply.content)

    def pages(self, path: str, key: str, params: Params) -> list[Any]:
        """What all pages of a list have under *key*."""
        found: list[Any] = []
        after: str | None = ""
        while after is not None:
            page = self.get(path, {**params, "after": after} if after else params)
            found += page[key]
            after = page.get("next")
        return found

    def lines(self, path: str, question: object) -> Iterator[Any]:
        """The JSON lines of the reply to a question, as they arrive."""
        headers = {"Content-Type": "application/json", "Accept": NDJSON}
        with self._reached(), self.http.stream("POST", path, content=orjson.dumps(question), headers=headers) as reply:
            if reply.is_error:
                reply.read()
            _check(reply)
            rest = b""
            for part in reply.iter_bytes():  # httpx's lines also end at separators within a text, such as U+2028
                *lines, rest = (rest + part).split(b"\n")
                yield from (_checked(orjson.loads(line)) for line in lines)
            if rest:
                yield _checked(orjson.loads(rest))

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (httpx.InvalidURL, httpx.HTTPError) as error:
            raise click.ClickException(f"{_as_typed('server')} {self.http.base_url}: no answer: {error}") from None


class _InProcess(httpx.BaseTransport):
    """Calls an ASGI application of this process, without sockets."""

    def __init__(self, app: Any) -> None:  # noqa: ANN401 - an ASGI application
        self._transport = httpx.ASGITransport(app=app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def call() -> httpx.Response:
            reply = await self._transport.handle_async_request(request)
            return httpx.Response(reply.status_code, headers=reply.headers, content=await reply.aread())

        return asyncio.run(call())


def offline(reports: tuple[Path, ...]) -> httpx.Client:
    """An extender in this process that has these reports. Raises ClickException for a file that is not a report."""
    from extender.app import make_app, make_service  # noqa: PLC0415 - half a second that a server does not need
    from extender.config.settings import Settings  # noqa: PLC0415
    from extender.identity import EVERYTHING  # noqa: PLC0415

    service = make_service(Settings(stale_after_seconds=_FOREVER, audit_window=1, loopback_scopes=EVERYTHING))
    client = httpx.Client(transport=_InProcess(make_app(service)), base_url="http://127.0.0.1")
    for file in reports:
        body = content(file, "--report")
        try:
            _check(client.put(f"/v1/nodes/{orjson.loads(body)['node_name']}/report", content=body))
        except (orjson.JSONDecodeError, TypeError, KeyError):
            raise click.ClickException(
                f"--report {file}: not a node report, as `numa-node-exporter report` prints it"
            ) from None
        except click.ClickException as error:
            raise click.ClickException(f"--report {file}: {error.message}") from None
    return client


def content(file: Path, option: str) -> bytes:
    """The content of the file of an option, `-` is standard input. Raises ClickException."""
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise click.ClickException(f"{option} {file}: {error.strerror}") from None


def _checked(line: Any) -> Any:  # noqa: ANN401 - JSON
    """The line. Raises ClickException for a problem, which is the last line of an incomplete answer."""
    if isinstance(line, dict) and "problem" in line:
        raise click.ClickException(f"the answer is not complete: {line['problem']['detail']}")
    return line


def _check(reply: httpx.Response) -> None:
    """Raise ExtenderFault with the detail of a problem."""
    if reply.is_success:
        return
    try:
        detail = orjson.loads(reply.content)["detail"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        detail = f"{reply.status_code} {reply.reason_phrase}"
    if (wait := reply.headers.get("retry-after")) is not None:
        detail = f"{detail}; try again in {wait} s"
    if reply.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        detail = f"{detail}\n{_HOW_TO_AUTHENTICATE}"
    raise ExtenderFault(str(detail))


def complete_node(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of nodes that begin with *incomplete*, for the shell. None if the server does not answer in a second."""
    options = context.params
    try:
        if options.get("reports"):
            names = [orjson.loads(content(Path(file), "--report"))["node_name"] for file in options["reports"]]
        else:
            server = options.get("server") or DEFAULT_SERVER
            with _http_client(server, options.get("token_file"), options.get("ca_file"), COMPLETE_SECONDS) as client:
                names = ExtenderClient(client).get("/v1/map")["nodes"]["name"]
    except (click.ClickException, orjson.JSONDecodeError, KeyError, TypeError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_machine(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of machines of the catalogue, for shell completion."""
    from extender.samples.machines import CATALOGUE  # noqa: PLC0415 - half a second that no other command needs

    return [name for name in CATALOGUE if name.startswith(incomplete)]
