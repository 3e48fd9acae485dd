#include "client/bench/svg.h"

#include <stdlib.h>
#include <string.h>

#include "proto/printable.h"

void cgm_svg_begin(FILE *out, double width, double height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
            width, height, width, height);
}

void cgm_svg_end(FILE *out)
{
    fputs("</svg>\n", out);
}

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            fputc(*text, out);
        }
}

void cgm_svg_escape(FILE *out, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return;
    cgm_printable(copy); /* XML is UTF-8 */
    put_escaped(out, copy);
    free(copy);
}

void cgm_svg_text(FILE *out, double x, double y, const char *anchor, const char *color,
                  const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor,
            color);
    cgm_svg_escape(out, text);
    fputs("</text>\n", out);
}
