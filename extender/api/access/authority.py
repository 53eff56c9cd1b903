"""Who checks the tokens of callers."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Protocol

from extender.identity import AccessScope, Means, NotAllowedError, Principal


class Authority(Protocol):
    """Authenticates and authorizes tokens."""

    def known(self, token: str, scope: AccessScope) -> Principal | None:
        """The owner of *token*, if the cache has it. None: call `admit`."""

    async def admit(self, token: str, scope: AccessScope) -> Principal:
        """The owner of *token*, who has *scope*.

        Raises:
            NotAllowedError: the token is not valid or not meant for this service, its owner does not have *scope*, or
                the token could not be checked.
        """

    def end_pods(self, uids: Iterable[str]) -> None:
        """Reject tokens of these pods from now on: the pods were deleted."""


class LateAuthority:
    """Refuses every token until `use` provides an authority.

    The API server is found only after the event loop starts.
    """

    def __init__(self) -> None:
        self._authority: Authority | None = None

    def use(self, authority: Authority) -> None:
        """Check tokens with *authority* from now on."""
        self._authority = authority

    def end_pods(self, uids: Iterable[str]) -> None:
        """Reject tokens of these pods from now on. Without an authority there is nothing to do."""
        if self._authority is not None:
            self._authority.end_pods(uids)

    def known(self, token: str, scope: AccessScope) -> Principal | None:
        """The owner of *token*, if the cache has it. None: call `admit`."""
        return None if self._authority is None else self._authority.known(token, scope)

    async def admit(self, token: str, scope: AccessScope) -> Principal:
        """The owner of *token*, who has *scope*. Without an authority every token is refused."""
        if self._authority is None:
            raise NotAllowedError(
                HTTPStatus.UNAUTHORIZED, "tokens are not accepted: no API server to check them", Means.TOKEN
            )
        return await self._authority.admit(token, scope)
