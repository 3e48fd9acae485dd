"""Files of shapes, as commgemm-bench reads them: on each line an operation, m, n and k of the whole
product, and any of a type, a layout (NN, NT, TN or TT) and name=NAME; # begins a comment."""

import collections
import os

Shape = collections.namedtuple("Shape", "name op m n k dtype layout what")

TYPES = ("fp32", "fp16", "bf16", "int8", "int32")
LAYOUTS = ("NN", "NT", "TN", "TT")
SIZES = ("m", "n", "k")
SIZE_LIMIT = 1 << 24
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes")


def size_of(field, text, lowest):
    if not text.isdigit() or not lowest <= int(text) <= SIZE_LIMIT:
        raise ValueError(f"{field} is '{text}': it must be {lowest} to {SIZE_LIMIT}")
    return int(text)


def take_words(words, shape):
    """What follows the sizes, in any order."""
    for word in words:
        if word in TYPES:
            shape["dtype"] = word
        elif word in LAYOUTS:
            shape["layout"] = word
        elif word.startswith("name=") and len(word) > len("name="):
            shape["name"] = word[len("name="):]
        else:
            raise ValueError(f"'{word}' is no type ({', '.join(TYPES)}), no layout "
                             f"({', '.join(LAYOUTS)}) and no name=NAME")


def parse_line(text, operations):
    """A Shape, or None for an empty line; ValueError says what is wrong."""
    line, _, comment = text.partition("#")
    words = line.split()
    if not words:
        return None
    if len(words) < 4:
        raise ValueError("op, m, n and k are needed")
    if words[0] not in operations:
        raise ValueError(f"op is '{words[0]}': it must be one of {', '.join(operations)}")
    product = "gemm" in words[0]
    sizes = [size_of(field, text, 1 if product or field != "k" else 0)
             for field, text in zip(SIZES, words[1:4])]
    shape = {"name": "-".join(words[:4]), "dtype": "bf16", "layout": "NN"}
    take_words(words[4:], shape)
    return Shape(op=words[0], m=sizes[0], n=sizes[1], k=sizes[2], what=comment.strip(), **shape)


def read(path, operations):
    shapes = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                shape = parse_line(line, operations)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            if shape:
                shapes.append(shape)
    return shapes
