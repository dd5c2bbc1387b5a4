"""The core that tests above the tree run on: the one that AGENTCACHE_CORE names, as for a user."""

import os

from agentcache.config import CacheSettings

CORE: str = os.environ.get("AGENTCACHE_CORE") or CacheSettings.model_fields["core"].default
