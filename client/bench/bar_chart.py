"""A grouped bar chart as SVG: a group of bars for each shape, a bar for each series."""

import collections
import html

Series = collections.namedtuple("Series", "name color")
Group = collections.namedtuple("Group", "label values")  # label: lines; values: by series, or None

LEFT, TOP, HEIGHT, BOTTOM, RIGHT = 64, 96, 360, 76, 24
BAR, GAP = 10, 26
LEGEND_COLUMN, LEGEND_ROW = 200, 18
STEP = 0.1


def text(x, y, words, **attributes):
    extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{html.escape(words)}</text>'


def axis(top_value, title, bottom, width):
    lines = []
    for step in range(round(top_value / STEP) + 1):
        y = bottom - HEIGHT * step * STEP / top_value
        one = round(step * STEP, 9) == 1
        lines.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{width - RIGHT}" y2="{y:.1f}" '
                     f'stroke="{"#1a202c" if one else "#e2e8f0"}" stroke-width="{1.5 if one else 1}"/>')
        lines.append(text(LEFT - 8, y + 4, f"{step * STEP:.1f}", text_anchor="end"))
    middle = bottom - HEIGHT / 2
    lines.append(text(18, middle, title, text_anchor="middle",
                      transform=f"rotate(-90 18 {middle:.1f})"))
    return lines


def legend(series, columns):
    lines = []
    for at, one in enumerate(series):
        x, y = LEFT + at % columns * LEGEND_COLUMN, 56 + at // columns * LEGEND_ROW
        lines.append(f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" fill="{one.color}"/>')
        lines.append(text(x + 18, y + 10, one.name))
    return lines


def bars(group, series, x, bottom, top_value):
    lines = []
    there = [(one, value) for one, value in zip(series, group.values) if value is not None]
    middle = x + len(series) * BAR / 2
    x = middle - len(there) * BAR / 2
    for at, (one, value) in enumerate(there):
        height = HEIGHT * value / top_value
        lines.append(f'<rect x="{x + at * BAR:.1f}" y="{bottom - height:.1f}" width="{BAR - 1}" '
                     f'height="{height:.1f}" fill="{one.color}"><title>'
                     f"{html.escape(one.name)}, {html.escape(' '.join(group.label))}: {value:.3f}"
                     "</title></rect>")
    lines += [text(middle, bottom + 20 + 16 * at, line, text_anchor="middle")
              for at, line in enumerate(group.label)]
    return lines


def draw(title, subtitle, axis_title, series, groups):
    """The whole file. The axis begins at 0 and reaches 1 at least."""
    pitch = max(len(series) * BAR, 100) + GAP
    width = max(LEFT + len(groups) * pitch + RIGHT, 800)
    columns = max((width - LEFT - RIGHT) // LEGEND_COLUMN, 1)
    bottom = TOP + (len(series) - 1) // columns * LEGEND_ROW + HEIGHT
    highest = max((value for group in groups for value in group.values if value), default=1)
    top_value = max(1, -(-highest // STEP) * STEP)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + BOTTOM}" '
             f'viewBox="0 0 {width} {bottom + BOTTOM}" font-family="sans-serif" font-size="12" '
             'fill="#1a202c">', '<rect width="100%" height="100%" fill="#ffffff"/>',
             text(16, 24, title, font_size=16), text(16, 43, subtitle, fill="#4a5568")]
    lines += legend(series, columns) + axis(top_value, axis_title, bottom, width)
    for at, group in enumerate(groups):
        lines += bars(group, series, LEFT + GAP / 2 + at * pitch, bottom, top_value)
    lines.append(text(width / 2, bottom + 60, "shape: name, m n k of the whole product",
                      text_anchor="middle", fill="#4a5568"))
    return "\n".join(lines) + "\n</svg>\n"
