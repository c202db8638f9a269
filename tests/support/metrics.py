"""What a Prometheus registry exposes."""

from __future__ import annotations

from typing import Any


def samples(registry: Any, common: dict[str, str]) -> Any:
    """The values of the samples with these labels, by name and other labels; no buckets."""
    found = {}
    for family in registry.collect():
        for sample in family.samples:
            if "le" in sample.labels or not common.items() <= sample.labels.items():
                continue
            rest = [f'{k}="{v}"' for k, v in sample.labels.items() if k not in common]
            found[sample.name + (f"{{{','.join(rest)}}}" if rest else "")] = sample.value
    return found.items()
