/* Who does a plan's collectives: a device library or copies of ours. */
#ifndef CGM_COLLECTIVES_H
#define CGM_COLLECTIVES_H

struct cgm_plan;
struct cgm_executor;

/* Gives the plan's ranks the comm's group where there can be one, which the first plan that wants
 * it makes, and adds to the plan's reason what was found. On the mapper, while launches are held.
 */
void cgm_collectives_choose(struct cgm_plan *plan, struct cgm_executor *executor);

#endif
