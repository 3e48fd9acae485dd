/* Texts that others have made, before a terminal or a log of lines gets them. */
#ifndef CGM_PRINTABLE_H
#define CGM_PRINTABLE_H

/* Puts a '?' into the place of every control character, ends of lines included, and of every byte
 * that is no UTF-8. */
void cgm_printable(char *text);

#endif
