/* The other users who may write what one user has, as far as that must be told apart: whoever of
 * them has its fd can hold the system's locks on it. */
#ifndef CGM_GUEST_H
#define CGM_GUEST_H

#include <stdint.h>

/* Instead of a guest's uid. */
#define CGM_NOBODY UINT32_MAX         /* there is none; also the uid of no user */
#define CGM_SEVERAL (UINT32_MAX - 1u) /* more than one */

/* Who is one when this one is, too, who may be of these two himself. */
static inline uint32_t cgm_guest_with(uint32_t guest, uint32_t another)
{
    if (another == CGM_NOBODY || another == guest)
        return guest;
    return guest == CGM_NOBODY ? another : CGM_SEVERAL;
}

#endif
