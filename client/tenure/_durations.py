"""Durations as people write them: ``30s``, ``500ms``, ``2m``, ``1h``, ``1h30m``."""

from __future__ import annotations

import re
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h|d)", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def parse_ms(text: str) -> int:
    """The duration in milliseconds; ``0`` needs no unit. Raises ValueError with a sentence for people."""
    text = text.strip()
    if text == "0":
        return 0
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write it as 30s, 500ms, 2m, 1h or 1h30m")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))


def format_ms(duration_ms: int) -> str:
    """Short and for people: ``29.9s``, ``4m05s``, ``1h00m``."""
    seconds = duration_ms / 1000
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest_s = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest_s:02d}s"
    hours, rest_m = divmod(minutes, 60)
    return f"{hours}h{rest_m:02d}m"
