"""How is a picture written as SVG that is safe to put into a page?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

# a screen and a phone: a picture that is only made smaller has letters that nobody can read
WIDE: Final = 920
NARROW: Final = 380


def number(value: float) -> str:
    """A coordinate: one decimal is finer than any screen."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


@dataclass
class Picture:
    """A drawing of this size; text in it is always escaped, colours are the page's, by class."""

    width: int
    height: int
    # what it shows, and what is to be seen in it: for those who cannot see it
    title: str
    description: str
    parts: list[str] = field(default_factory=list)

    def line(self, start: tuple[float, float], end: tuple[float, float], *, kind: str) -> None:
        """A straight line."""
        (x1, y1), (x2, y2) = start, end
        self.parts.append(
            f'<line class="{escape(kind)}" x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"/>'
        )

    def box(self, corner: tuple[float, float], size: tuple[float, float], *, kind: str, tip: str = "") -> None:
        """A rectangle, at least half a unit wide and high, so that it can be seen."""
        (x, y), (width, height) = corner, size
        self.parts.append(
            f'<rect class="{escape(kind)}" x="{number(x)}" y="{number(y)}" width="{number(max(width, 0.5))}"'
            f' height="{number(max(height, 0.5))}" rx="1.5">{_tip(tip)}</rect>'
        )

    def dot(self, centre: tuple[float, float], radius: float, *, kind: str, tip: str = "") -> None:
        """A circle."""
        self.parts.append(
            f'<circle class="{escape(kind)}" cx="{number(centre[0])}" cy="{number(centre[1])}"'
            f' r="{number(radius)}">{_tip(tip)}</circle>'
        )

    def curve(self, points: Sequence[tuple[float, float]], *, kind: str) -> None:
        """Straight lines from point to point."""
        path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.parts.append(f'<path class="{escape(kind)}" d="M{path}"/>')

    def text(self, at: tuple[float, float], words: str, *, kind: str = "label", anchor: str = "start") -> None:
        """Words, beginning, centred (`middle`) or ending (`end`) there."""
        self.parts.append(
            f'<text class="{escape(kind)}" x="{number(at[0])}" y="{number(at[1])}"'
            f' text-anchor="{escape(anchor)}">{escape(words)}</text>'
        )

    def render(self, name: str, *, kind: str) -> str:
        """The element; `name` is unique in the page."""
        ids = f"{name}-title", f"{name}-description"
        return (
            f'<svg class="{escape(kind)}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' role="img" aria-labelledby="{escape(ids[0])} {escape(ids[1])}">'
            f'<title id="{escape(ids[0])}">{escape(self.title)}</title>'
            f'<desc id="{escape(ids[1])}">{escape(self.description)}</desc>'
            f"{''.join(self.parts)}</svg>"
        )


def _tip(tip: str) -> str:
    """What a browser shows under the pointer."""
    return f"<title>{escape(tip)}</title>" if tip else ""
