"""Write the page to look at rotations and to change them.

python docs/explorer.py                          docs/explorer.html, with the models that the demo draws
python docs/explorer.py config.json page.html    a page with the models of one config
"""

import sys
from pathlib import Path
from typing import Any

from explorer_page import html_page, view_entries

from phasor.tools.inspect.view import read_view
from phasor_lab.demo.run import bundled_models

TARGET = Path(__file__).with_name("explorer.html")


def page() -> str:
    """The page of the site."""
    return page_of({name: one["config"] for name, one in bundled_models().items()}, "rotary positions")


def page_of(configs: dict[str, Any], title: str) -> str:
    found = [entry for name, config in configs.items() for entry in view_entries(read_view(config), config, name)]
    return html_page(found, title)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        TARGET.write_text(page(), encoding="utf-8")
    elif len(sys.argv) == 3:
        Path(sys.argv[2]).write_text(page_of({sys.argv[1]: sys.argv[1]}, sys.argv[1]), encoding="utf-8")
    else:
        sys.exit(__doc__)
