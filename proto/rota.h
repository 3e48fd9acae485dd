/* Whose turn it is: users one after the other, and each user's entries in the order of their
 * coming. Entries are parts of larger objects; nothing is allocated. Owned by one thread, or under
 * a lock. */
#ifndef CGM_ROTA_H
#define CGM_ROTA_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_rota_entry {
    uint32_t uid;
    struct cgm_rota_entry *behind; /* the same user's, which begins when this one is through */
    /* Of a user's first one alone. */
    struct cgm_rota_entry *next; /* another user's first one */
    struct cgm_rota_entry *last; /* this user's; perhaps itself */
};

struct cgm_rota {
    struct cgm_rota_entry *first; /* whose turn it is; NULL: nobody's */
};

/* Its uid is set. */
void cgm_rota_add(struct cgm_rota *rota, struct cgm_rota_entry *entry);

/* The first one has had its turn, and its user comes behind all others. through: it leaves, and
 * that user goes on with what is behind it. */
void cgm_rota_move_on(struct cgm_rota *rota, bool through);

#endif
