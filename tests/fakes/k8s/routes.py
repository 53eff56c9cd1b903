"""From a request to what it does: lists, objects, subresources and reviews. Watches are served by `streams`."""

import base64
from collections.abc import Callable

import orjson
import yaml

from tests.fakes.k8s.access import Access
from tests.fakes.k8s.http import Request, reply
from tests.fakes.k8s.objects import Registry
from tests.fakes.k8s.resources import JSON, PODS, REVIEWS, TOKEN_REVIEWS, ApiProblem, Resource, Target, expired
from tests.fakes.k8s.selectors import Selector, compile_selector
from tests.fakes.k8s.store import Store

_APPLY = "application/apply-patch+yaml"
_MERGE = ("application/merge-patch+json", "application/strategic-merge-patch+json")


class Routes:
    """Carries out everything but watches."""

    def __init__(self, store: Store, registry: Registry, access: Access) -> None:
        self._store, self._registry, self._access = store, registry, access

    def answer(self, request: Request, target: Target) -> bytes:
        """The whole reply; raises ApiProblem for a refusal."""
        if target.resource in REVIEWS:
            return self._review(request, target.resource)
        if request.method in ("GET", "HEAD"):
            if not target.name:
                return self._list(request, target)
            return reply(200, self._registry.get(target).raw)
        return self._write(request, target)

    def _write(self, request: Request, target: Target) -> bytes:
        if request.method == "POST":
            if target.subresource == "binding" and target.resource is PODS:
                return reply(201, orjson.dumps(self._registry.bind(target, request.json())))
            if target.subresource == "eviction" and target.resource is PODS:
                return reply(201, orjson.dumps(self._registry.evict(target, request.json())))
            if target.name:
                raise ApiProblem(405, "MethodNotAllowed", "the server does not allow this method")
            return reply(201, orjson.dumps(self._registry.create(target.resource, request.json(), target.namespace)))
        actions: dict[str, Callable[[], JSON]] = {
            "PUT": lambda: self._registry.replace(target, request.json()),
            "PATCH": lambda: self._patch(request, target),
            "DELETE": lambda: self._registry.delete(target, _delete_options(request)),
        }
        return reply(200, orjson.dumps(actions[request.method]()))

    def _patch(self, request: Request, target: Target) -> JSON:
        kind = request.headers.get("content-type", "").partition(";")[0]
        if kind == _APPLY:
            value = yaml.safe_load(request.body)
            force = request.query.get("force") == "true"
            return self._registry.apply(target, value, request.query.get("fieldManager", ""), force=force)
        if kind not in _MERGE:
            raise ApiProblem(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {kind}")
        patch = request.json()
        if target.subresource == "status":
            patch = {k: v for k, v in patch.items() if k in ("status", "metadata")}
        return self._registry.merge(target, patch)

    def _review(self, request: Request, resource: Resource) -> bytes:
        if request.method != "POST":
            raise ApiProblem(405, "MethodNotAllowed", "the server does not allow this method")
        answer = self._access.token_review if resource is TOKEN_REVIEWS else self._access.access_review
        return reply(201, orjson.dumps(answer(request.json())))

    def _list(self, request: Request, target: Target) -> bytes:
        limit = _number(request, "limit") or 0
        after, at = "", None
        if token := request.query.get("continue"):
            after, at = _read_continue(token)
        try:
            items, last, revision, remaining = self._store.page(
                target.resource, selector_of(request, target), after=after, limit=limit, at=at
            )
        except ApiProblem as error:
            raise expired("The provided continue parameter is too old") if error.code == 410 else error from error
        metadata: JSON = {"resourceVersion": str(revision)}
        if last:
            metadata["continue"] = base64.urlsafe_b64encode(orjson.dumps([revision, last])).decode()
            metadata["remainingItemCount"] = remaining
        head = {"kind": f"{target.resource.kind}List", "apiVersion": target.resource.api_version, "metadata": metadata}
        body = b'%b,"items":[%b]}' % (orjson.dumps(head)[:-1], self._store.sent(b",".join(items)))
        return reply(200, body)


def selector_of(request: Request, target: Target) -> Selector:
    """What the request asks about; 400 for a bad selector."""
    return compile_selector(
        target.namespace, request.query.get("fieldSelector", ""), request.query.get("labelSelector", "")
    )


def revision_of(request: Request) -> int | None:
    """The resourceVersion asked for; None when it is unset or 0, which both mean "any, with the current state"."""
    return _number(request, "resourceVersion") or None


def _number(request: Request, name: str) -> int | None:
    value = request.query.get(name, "")
    if not value:
        return None
    if not value.isascii() or not value.isdigit():
        raise ApiProblem(400, "BadRequest", f"invalid {name}: {value!r}")
    return int(value)


def _read_continue(token: str) -> tuple[str, int]:
    try:
        revision, last = orjson.loads(base64.urlsafe_b64decode(token))
    except (ValueError, TypeError) as error:
        raise ApiProblem(400, "BadRequest", "continue key is not valid") from error
    return str(last), int(revision)


def _delete_options(request: Request) -> JSON:
    options = request.json()
    grace = _number(request, "gracePeriodSeconds")
    return options if grace is None else {**options, "gracePeriodSeconds": grace}
