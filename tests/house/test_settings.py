"""Settings that a user may set must reach something."""

from agentcache.config import Settings
from tests.house.source import ROOT, python_files, require_none


def test_every_setting_is_read_outside_its_definition() -> None:
    """R242: a setting that is dropped on its way looks set and changes nothing."""
    sources = [source for source in python_files("agentcache") if source.path != "agentcache/config.py"]
    text = "\n".join(source.text for source in sources)
    require_none(
        f"{name}: nothing under {ROOT.name}/agentcache reads settings.{name}"
        for name in Settings.model_fields
        if f"settings.{name}" not in text
    )
