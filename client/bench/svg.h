/* Pieces of SVG files. */
#ifndef CGM_BENCH_SVG_H
#define CGM_BENCH_SVG_H

#include <stdio.h>

/* The file's first element, with a white ground and sans-serif text of 12 pixels. */
void cgm_svg_begin(FILE *out, double width, double height);
void cgm_svg_end(FILE *out);

/* Text with what is special to XML escaped, and control characters as blanks. */
void cgm_svg_escape(FILE *out, const char *text);

/* One line of text; anchor: "start", "middle" or "end". */
void cgm_svg_text(FILE *out, double x, double y, const char *anchor, const char *color,
                  const char *text);

#endif
