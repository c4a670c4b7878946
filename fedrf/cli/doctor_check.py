"""One line of `fedrf doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LOW_DISK_GB = 10


@dataclass(frozen=True)
class Check:
    """One line of the report; `advice` says what to do if `status` is not ok."""

    name: str
    status: Literal["ok", "missing", "problem"]
    found: str
    advice: str = ""
