"""What the site needs beyond docs/: the pages of the root, links between both, and formulas as MathML."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "DESIGN.md": "design.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\.png\)")
CODE = re.compile(r"(^```.*?^```[ \t]*$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```math\n(.+?)^```[ \t]*$|^\$\$(.+?)\$\$[ \t]*$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\\tag\{(\w+)\}")
INLINE = re.compile(r"(?<![\\\w$])\$(?!\s)([^$]+?)(?<!\s)\$(?![\w$])")


def on_config(config: Any) -> Any:
    """Every page of the API in the navigation, by its module."""
    pages = sorted((ROOT / "docs" / "api").glob("phasor*.md"))
    entries: list[Any] = ["api/README.md", *({page.stem: f"api/{page.name}"} for page in pages)]
    config["nav"] = [{"API": entries} if item == {"API": "api/"} else item for item in config["nav"]]
    return config


def on_files(files: Any, config: Any) -> Any:
    """The root's pages under the names that the site has for them."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as the site has its pages, and formulas as MathML; code stays as it is."""
    source = page.file.src_uri
    depth = source.count("/")
    of_root = source in PAGES.values()
    parts = CODE.split(BLOCK.sub(lambda m: _block(m[1] or m[2]), markdown))
    for i in range(0, len(parts), 2):
        parts[i] = INLINE.sub(lambda m: f"<span>{_math(m[1], 'inline')}</span>", parts[i])
        parts[i] = PICTURE.sub(lambda m: _in_both_schemes(m[1], m[2]), parts[i])
        parts[i] = LINK.sub(lambda m: f"{m[1]}{_target(m[2], of_root, depth)}{m[3] or ''})", parts[i])
    return "".join(parts)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Names for what the theme leaves without one."""
    return _named(output)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The same for the page of what is not found."""
    return _named(output_content) if template_name.endswith(".html") else output_content


def _named(page: str) -> str:
    for what, name in (('id="__search"', "Search"), ('id="__drawer"', "Navigation"), ('role="dialog"', "Search")):
        page = page.replace(what, f'{what} aria-label="{name}"')
    return page


def _target(link: str, of_root: bool, depth: int) -> str:
    if link.startswith(("http://", "https://", "mailto:")):
        return link
    if of_root:
        return PAGES.get(link, link.removeprefix("docs/"))
    root = "../" * (depth + 1)
    return "../" * depth + PAGES[link.removeprefix(root)] if link.removeprefix(root) in PAGES else link


def _in_both_schemes(words: str, name: str) -> str:
    """A picture, and beside it the one for the dark scheme where there is one: the theme shows one of them."""
    if not (ROOT / "docs" / f"{name}-dark.png").is_file():
        return f"![{words}]({name}.png)"
    return f"![{words}]({name}.png#only-light)![{words}]({name}-dark.png#only-dark)"


def _block(formula: str) -> str:
    """With its number, if it has one, at the right."""
    number = NUMBER.search(formula)
    label = f"<span>({number[1]})</span>" if number else ""
    return f'<div class="formula">{_math(NUMBER.sub("", formula), "block")}{label}</div>'


def _math(formula: str, display: str) -> str:
    from latex2mathml.converter import convert

    plain = re.sub(r"\s+", " ", formula).strip()
    return convert(plain, display=display).replace("\n", "")
