"""What `kubectl get` prints, for commands that read a cluster with the user's own credentials, of whatever kind."""

import shutil
import subprocess
from typing import Any, Final

import click
import orjson

READ_SECONDS: Final = 60.0


def kubectl_get(*arguments: str) -> Any:  # noqa: ANN401 - JSON
    """The JSON that `kubectl get` with these arguments prints. Raises ClickException that says why there is none."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise click.ClickException("kubectl is not installed")
    try:
        done = subprocess.run(  # noqa: S603 - kubectl of the user's own PATH, without a shell
            [kubectl, "get", *arguments], capture_output=True, check=True, timeout=READ_SECONDS
        )
        return orjson.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]  # log lines may precede it
        raise click.ClickException(f"kubectl says: {last}") from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:  # a name may have a NUL, or the text be no JSON
        raise click.ClickException(f"kubectl does not answer: {error}") from None
