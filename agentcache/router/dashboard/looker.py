"""Who may look: the operator, by a key as everywhere or by a browser's user name and password."""

import base64
import binascii

from agentcache.router.tenants import Tenants
from agentcache.web.headers import RawHeaders, RequestHeaders

CHALLENGE = {"www-authenticate": 'Basic realm="agentcache", charset="UTF-8"'}
"""What makes a browser ask for the key."""


def require_operator(tenants: Tenants, headers: RawHeaders) -> None:
    """Let the operator pass, as `Tenants.require_admin` does; of Basic the password is the key, any user name will do.

    Errors  CacheError(UNAUTHORIZED)
    """
    tenants.require_admin(RequestHeaders([_as_bearer(name, value) for name, value in headers]))


def _as_bearer(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    scheme, _, sent = value.strip().partition(b" ")
    if name.lower() != b"authorization" or scheme.lower() != b"basic":
        return name, value
    try:
        _, _, password = base64.b64decode(sent.strip(), validate=True).partition(b":")
    except binascii.Error:
        password = b""
    return name, b"Bearer " + password
