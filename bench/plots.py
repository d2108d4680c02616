"""The look of drawings by matplotlib: the palette of all pictures (src/cli/picture_style.inc), on light and dark pages."""

import pathlib
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

STYLE = pathlib.Path(__file__).resolve().parent.parent / "src" / "cli" / "picture_style.inc"
WIDTH = 8.0  # inches: 800 pixels on a page, with text of 12 pixels and more


def palette():
    """{class: (fill or stroke on light pages, on dark pages)}"""
    light, dark = STYLE.read_text().split("@media", 1)
    read = lambda css: {name: (fill or stroke) for name, fill, stroke in re.findall(  # noqa: E731
        r"\.?(\w+)\{(?:fill:(#\w+)|stroke:(#\w+))", css)}
    night = read(dark)
    return {name: (day, night[name]) for name, day in read(light).items() if name in night}


def long_form(color):
    return color if len(color) == 7 else "#" + "".join(2 * digit for digit in color[1:])


COLOURS = {name: tuple(map(long_form, pair)) for name, pair in palette().items()}
INK, MUTED, GRID, PAGE = (COLOURS[name][0] for name in ("text", "axis", "grid", "page"))
SERIES = [COLOURS[f"f{i}"][0] for i in range(7)]

plt.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "chairlift", "font.family": "sans-serif", "font.size": 9.5,
    "axes.titlesize": 11, "axes.titleweight": "bold", "axes.labelsize": 9.5, "legend.fontsize": 9,
    "legend.frameon": False, "text.color": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "axes.edgecolor": MUTED,
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK, "grid.color": GRID,
    "figure.facecolor": PAGE, "axes.facecolor": PAGE, "axes.prop_cycle": matplotlib.cycler(color=SERIES),
    "axes.spines.top": False, "axes.spines.right": False,
})


def panels(count, height=2.9):
    """`count` plots, two beside each other."""
    columns, rows = min(count, 2), (count + 1) // 2
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, height * rows + 0.9), squeeze=False, layout="constrained")
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.set_axis_off()
    return figure, flat[:count]


def legend(figure):
    """One for all plots, below them."""
    known = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            known.setdefault(label, handle)
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=2 if len(known) > 3 else max(len(known), 1))


def for_dark_pages(svg):
    """The SVG with the colours of a dark page where the reader has one."""
    rules = []
    for light, dark in dict(COLOURS.values()).items():
        for kind in ("fill", "stroke"):
            if f"{kind}: {light}" in svg:
                rules.append(f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}')
    style = "<style>@media(prefers-color-scheme:dark){\n" + "\n".join(rules) + "\n}</style>\n"
    return re.sub(r"(<svg[^>]*>\n?)", lambda found: found[1] + style, svg, count=1)


def save(figure, path):
    figure.savefig(path, metadata={"Date": None})
    path.write_text(for_dark_pages(path.read_text()))
    plt.close(figure)
