/* SPDX-License-Identifier: MIT */
/*
 * letters.c: the list of received letters.
 *
 * Python code may be left between the receipt of a letter and the end of its
 * handling; see inbox.c. Therefore:
 *
 *  1. A letter is in the list from its receipt until it is reported as
 *     handled. If that does not happen, the next leader handles it (again).
 *  2. A letter that was handled, or dropped, stays in memory while any turn may
 *     be reading one (`readers`).
 *
 * Only the leader receives. It does so without the lock, and takes the lock to
 * append.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mail/internal.h"

#define MOST_LETTERS 64 /* received in one go */

struct mooi_letter {
    struct mooi_letter *next;
    uint64_t serial;
    mooi_zmq_msg message;
    int whole;   /* the identity, and at least one part more */
    char *joint; /* NULL, or the parts of a message that had several */
    size_t bytes; /* of `joint` */
};

struct mooi_letter *mooi_letter_of(const char *data, size_t bytes)
{
    struct mooi_letter *letter = calloc(1, sizeof *letter);

    if (!letter || mooi_zmq.msg_init_size(&letter->message, bytes)) {
        free(letter);
        return NULL;
    }
    memcpy(mooi_zmq.msg_data(&letter->message), data, bytes);
    letter->whole = 1;
    return letter;
}

void mooi_free_letters(struct mooi_letter *letter)
{
    while (letter) {
        struct mooi_letter *next = letter->next;
        mooi_zmq.msg_close(&letter->message);
        free(letter->joint);
        free(letter);
        letter = next;
    }
}

/* ---- receiving; by the leader ---- */

/* Append a part to those before it. 0: no memory. */
static int join(struct mooi_letter *letter)
{
    size_t more = mooi_zmq.msg_size(&letter->message);
    char *larger = realloc(letter->joint, letter->bytes + more + 1);

    if (!larger)
        return 0;
    if (more)
        memcpy(larger + letter->bytes, mooi_zmq.msg_data(&letter->message),
               more);
    letter->joint = larger;
    letter->bytes += more;
    return 1;
}

/* The next part of a message that came, or -1. */
static int receive_part(moo_inbox *inbox, mooi_zmq_msg *part)
{
    int received;

    do
        received =
            mooi_zmq.msg_recv(part, inbox->socket, MOOI_ZMQ_DONTWAIT);
    while (received < 0 && mooi_zmq.error() == EINTR);
    return received;
}

static struct mooi_letter *receive_one(moo_inbox *inbox)
{
    struct mooi_letter *letter = calloc(1, sizeof *letter);
    int received, parts = 0, more = 1, joined = 1;

    if (!letter)
        return NULL;
    mooi_zmq.msg_init(&letter->message);
    while (more) { /* the connection's identity; then the letter itself */
        received = receive_part(inbox, &letter->message);
        if (received < 0)
            break;
        parts++;
        more = mooi_zmq.msg_more(&letter->message);
        if (parts > 2 || (parts == 2 && more))
            joined = joined && join(letter);
    }
    if (!parts) {
        inbox->drained = mooi_zmq.error() == EAGAIN;
        mooi_zmq.msg_close(&letter->message);
        free(letter);
        return NULL;
    }
    letter->whole = parts >= 2 && !more && joined;
    return letter;
}

int mooi_receive(moo_inbox *inbox)
{
    struct mooi_letter *letter;
    int count = 0;

    inbox->drained = 0;
    while (count < MOST_LETTERS && (letter = receive_one(inbox))) {
        count++;
        pthread_mutex_lock(&inbox->lock);
        mooi_append(inbox, letter);
        pthread_mutex_unlock(&inbox->lock);
    }
    return count > 0;
}

/* ---- the lock is held ---- */

void mooi_append(moo_inbox *inbox, struct mooi_letter *letter)
{
    letter->next = NULL;
    letter->serial = ++inbox->serial;
    *(inbox->tail ? &inbox->tail->next : &inbox->head) = letter;
    inbox->tail = letter;
}

int mooi_read_first(moo_inbox *inbox, struct mooi_turn *turn)
{
    struct mooi_letter *letter = inbox->head;

    if (!letter)
        return 0;
    turn->serial = letter->serial;
    if (!letter->whole) {
        turn->data = "";
        turn->bytes = 0;
    } else if (letter->joint) {
        turn->data = letter->joint;
        turn->bytes = letter->bytes;
    } else {
        turn->data = mooi_zmq.msg_data(&letter->message);
        turn->bytes = mooi_zmq.msg_size(&letter->message);
    }
    turn->reads = 1;
    inbox->readers++;
    return 1;
}

/* Invariant 2. */
static void free_popped(moo_inbox *inbox)
{
    if (!inbox->readers && inbox->popped) {
        mooi_free_letters(inbox->popped);
        inbox->popped = NULL;
    }
}

void mooi_stop_reading(moo_inbox *inbox, struct mooi_turn *turn)
{
    if (turn->reads) {
        turn->reads = 0;
        inbox->readers--;
    }
    free_popped(inbox);
}

void mooi_pop(moo_inbox *inbox, uint64_t serial)
{
    struct mooi_letter *letter = inbox->head;

    if (!letter || letter->serial != serial)
        return; /* another turn has handled it */
    inbox->taken = letter->serial;
    inbox->head = letter->next;
    if (!inbox->head)
        inbox->tail = NULL;
    letter->next = inbox->popped;
    inbox->popped = letter;
}

void mooi_drop_letters(moo_inbox *inbox)
{
    if (!inbox->head)
        return;
    inbox->tail->next = inbox->popped;
    inbox->popped = inbox->head;
    inbox->head = inbox->tail = NULL;
    free_popped(inbox);
}
