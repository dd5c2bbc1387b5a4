"""What the README promises is there, and its library section is the example that runs."""

import re

from tests.house.source import ROOT, require_none

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_first_line_names_the_prerequisites_and_both_commands() -> None:
    first = README.splitlines()[0]
    for word in ("Python ≥ 3.11", "C compiler", "Rust ≥ 1.85", "`make demo`", "`make test`"):
        assert word in first, f"the README's first line does not name {word}"


def test_every_make_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", MAKEFILE, re.M))
    named = set(re.findall(r"\bmake ([a-z0-9]+)\b(?=[`\s])", "\n".join(_code(README))))
    assert {"demo", "test"} <= named
    require_none(f"README.md: no target {name} in the Makefile" for name in named - targets)


def test_library_section_is_the_first_example() -> None:
    example = (ROOT / "examples" / "01_cache_only.py").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    assert example in blocks, "README.md holds no python block equal to examples/01_cache_only.py"


def test_every_file_that_the_readme_names_exists() -> None:
    names = re.findall(r"\]\(([\w./-]+)\)", README)
    require_none(
        f"README.md: names {name}, which is not there" for name in names if not (ROOT / name).exists()
    )


def _code(text: str) -> list[str]:
    """Inline code and code blocks, each with a trailing space."""
    return [f"{code} " for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.S)]
