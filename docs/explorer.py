"""Write docs/explorer.html, the page to look at rotations and to change them, with the models that the demo draws."""

from pathlib import Path

from phasor.apps.demo.run import bundled_models
from phasor.apps.explorer import html_page, view_entries
from phasor.tools.inspect import read_view

TARGET = Path(__file__).with_name("explorer.html")


def page() -> str:
    """The page of the site."""
    models = bundled_models().items()
    found = [entry for name, one in models for entry in view_entries(read_view(one["config"]), one["config"], name)]
    return html_page(found, "rotary positions")


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
