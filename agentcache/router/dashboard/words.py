"""Counts and times as a person reads them."""

from typing import Final

_SPANS: Final = ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h"))
_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def span(seconds: float) -> str:
    """How long; "" for what is negative: nobody knows."""
    if seconds < 0:
        return ""
    for below, unit, name in _SPANS:
        if seconds < below:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def count(number: float) -> str:
    """Three figures, so that a column of them is aligned: 950, 12.3 k, 4.00 M."""
    return _scaled(number, "#.3g")


def tick(number: float) -> str:
    """As short as it is exact: 950, 12 k, 2.5 M."""
    return _scaled(number, ".3g")


def _scaled(number: float, spec: str) -> str:
    for unit in ("", " k", " M", " G"):
        if number < 999.5:
            return f"{number:{spec}}".rstrip(".") + unit if unit else f"{number:.0f}"
        number /= 1000
    return f"{number:{spec}} T"


def size(number: float) -> str:
    for unit in _BYTES:
        if number < 1023.5:
            return f"{number:#.3g}".rstrip(".") + f" {unit}" if unit != "B" else f"{number:.0f} B"
        number /= 1024
    return f"{number:#.3g} PiB"


def percent(part: float, whole: float) -> str:
    """ "–" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else "–"
