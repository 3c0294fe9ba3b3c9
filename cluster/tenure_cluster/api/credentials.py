"""The calls that make secrets: a credential is created or rotated, and its caller told the secret, once."""

from collections.abc import Callable
from typing import Any

import msgspec

from tenure_cluster.api.answer import Answer, refusal, success
from tenure_cluster.api.codec import Format
from tenure_cluster.api.dispatch import Endpoint
from tenure_cluster.api.port import LeasePort
from tenure_cluster.api.routes import Route
from tenure_cluster.auth import bearer
from tenure_cluster.auth.gate import EVERYBODY, Caller
from tenure_cluster.service.credential_replies import CredentialReply
from tenure_cluster.service.credential_requests import EntrustRequest, ReplaceSecretRequest
from tenure_cluster.service.errors import Problem


class _SecretEndpoint(Endpoint):
    """Draws a secret, has its digest kept, and tells it."""

    def __init__(self, route: Route, service: LeasePort, draw: Callable[[int], bytes]) -> None:
        super().__init__(route)
        self._service = service
        self._draw = draw

    async def _answer(
        self, operation: str, request: Any, secret: str, caller: Caller, answer_format: Format
    ) -> Answer:
        reply = await self._service.call(
            operation, caller.tenant, request, caller.credential_id, caller.origin
        )
        if isinstance(reply, Problem):
            return refusal(reply, answer_format)
        assert isinstance(reply, CredentialReply)
        shown = bearer.text(reply.credential.credential_id, secret)
        return success(200, msgspec.structs.replace(reply, bearer=shown), answer_format)


class CreateEndpoint(_SecretEndpoint):
    """POST /v1/credentials"""

    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        credential_id, secret = bearer.mint(self._draw)
        entrust = EntrustRequest(asked=request, credential_id=credential_id, digest=bearer.digest(secret))
        return await self._answer("entrust", entrust, secret, caller, answer_format)


class RotateEndpoint(_SecretEndpoint):
    """POST /v1/credentials/rotate"""

    async def answer(self, request: Any, answer_format: Format, caller: Caller = EVERYBODY) -> Answer:
        secret = bearer.mint_secret(self._draw)
        replace = ReplaceSecretRequest(asked=request, digest=bearer.digest(secret))
        return await self._answer("replace_secret", replace, secret, caller, answer_format)
