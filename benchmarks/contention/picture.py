"""A bar chart as SVG, readable on light and dark pages."""

from __future__ import annotations

from html import escape

WIDTH, LABELS, BAR, GAP = 760, 190, 18, 6
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #57606a }
.title { font-weight: 600 }
.ours { fill: #2f81f7 }
.other { fill: #8b949e }
@media (prefers-color-scheme: dark) { text { fill: #adbac7 } }
"""


def bars(groups: dict[str, dict[str, float]], ours: str, unit: str) -> str:
    """Horizontal bars in groups, each group with its own scale."""
    shapes: list[str] = []
    y = 20
    for title, values in groups.items():
        shapes.append(f'<text class="title" x="0" y="{y}">{escape(title)} ({unit})</text>')
        y += 12
        scale = (WIDTH - LABELS - 80) / max(*values.values(), 1)
        for label, value in values.items():
            shapes += bar(label, value, value * scale, y, "ours" if label == ours else "other")
            y += BAR + GAP
        y += 28
    size = f'width="{WIDTH}" height="{y - 28}" viewBox="0 0 {WIDTH} {y - 28}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<style>{STYLE}</style>",
            *shapes,
            "</svg>\n",
        ]
    )


def bar(label: str, value: float, length: float, y: int, kind: str) -> list[str]:
    middle = y + BAR - 5
    return [
        f'<text x="{LABELS - 8}" y="{middle}" text-anchor="end">{escape(label)}</text>',
        f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{max(1, length):.0f}" '
        f'height="{BAR}" rx="2"/>',
        f'<text x="{LABELS + max(1, length) + 6:.0f}" y="{middle}">{value:,.0f}</text>',
    ]
