#include "daemon/executor/losses.h"

#include "daemon/executor/poller.h"

static void append(struct cgm_poller *poller, struct cgm_loss *loss)
{
    struct cgm_loss **end = &poller->losses;
    while (*end)
        end = &(*end)->next;
    loss->next = NULL;
    *end = loss;
}

void cgm_losses_add(struct cgm_poller *poller, struct cgm_loss *loss)
{
    if (loss->listed)
        return;
    loss->listed = true;
    append(poller, loss);
}

void cgm_losses_step(struct cgm_poller *poller)
{
    struct cgm_loss *loss = poller->losses;
    bool more = loss->piece(loss);
    poller->losses = loss->next;
    if (more) {
        append(poller, loss);
        return;
    }
    loss->listed = false;
    loss->done(loss);
}
