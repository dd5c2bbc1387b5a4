"""One of several router processes: started by `processes.py`, which tells it everything in a variable."""

import os
import sys

import msgspec

from agentcache import logs
from agentcache.router.processes import TOLD, Told
from agentcache.router.serve import Run, run_one
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import VARIABLE, load_tenants
from agentcache.web.listening import bind_shared


def main() -> int:
    """Serve until SIGTERM; the exit code."""
    told = msgspec.json.decode(os.environ[TOLD], type=Told)
    known = {name: said for name, said in told.settings.items() if name in RouterSettings.model_fields}
    settings = RouterSettings(**known)  # of the first process, which may be older than what is installed now
    logs.configure(settings.log_format, settings.log_level, sys.stderr)
    tenants = load_tenants(settings.tenants_file, os.environ.get(VARIABLE, ""), settings.admin_key_file)
    with bind_shared(settings.host, settings.port) as listener:
        run = Run(_silent, told.store_now_ms, told.counted)
        return run_one(settings, told.place, tenants, listener, run)


def _silent() -> None:
    """The first process says that the router is there."""


if __name__ == "__main__":
    sys.exit(main())
