"""Settings that a user may set must reach something."""

import ast
import re
from collections.abc import Iterator

from pydantic import BaseModel

from agentcache.config import Settings
from agentcache.router.settings import RouterSettings
from tests.house.source import Source, python_files, require_none

ROUTER = "agentcache/router/"


def test_every_setting_is_read_outside_its_definition() -> None:
    """R242: a setting that is dropped on its way looks set and changes nothing."""
    sources = {
        source.path: source for source in python_files("agentcache") if not source.path.startswith(ROUTER)
    }
    require_none(unread(Settings, sources, "agentcache/config.py"))


def test_every_setting_of_a_router_is_read_by_the_router() -> None:
    sources = {source.path: source for source in python_files("agentcache") if source.path.startswith(ROUTER)}
    require_none(unread(RouterSettings, sources, f"{ROUTER}settings.py"))


def unread(model: type[BaseModel], sources: dict[str, Source], definition: str) -> Iterator[str]:
    derived = properties(sources.pop(definition))
    read = {name for source in sources.values() for name in re.findall(r"settings\.(\w+)", source.text)}
    read |= {field for name in read & derived.keys() for field in derived[name]}
    return (f"{name}: nothing reads settings.{name}" for name in model.model_fields if name not in read)


def properties(config: Source) -> dict[str, set[str]]:
    """The properties of the settings, with the fields that each is made of."""
    return {
        function.name: {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
        for function in config.functions
        if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in function.decorator_list)
    }
