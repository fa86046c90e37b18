/* SPDX-License-Identifier: MIT */
/*
 * The inbox and its waiting threads, and outboxes, over a libzmq of our own:
 * sockets that are queues here, which lose nothing and add nothing.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>

#include "check.h"
#include "mail/zmq.h"
#include "mooactor.h"

#define WAITERS 4
#define ROUNDS 3000
#define PREFIX "head"

/* ---- the libzmq of this test ---- */

struct letter {
    struct letter *next;
    int more; /* the next letter is of the same message */
    size_t bytes;
    char data[];
};

struct socket {
    pthread_mutex_t lock;
    struct letter *first, **last;
    int fd;      /* readable as libzmq's is: see `deliver` */
    int drained; /* the last receive found nothing */
    int part;    /* of the first letter: 0 is its sender's identity */
    _Atomic int error; /* of the next send, if not 0 */
};

static __thread int failure;

static struct socket *socket_new(void)
{
    struct socket *socket = calloc(1, sizeof *socket);

    CHECK(socket);
    socket->fd = eventfd(0, EFD_NONBLOCK);
    CHECK(socket->fd >= 0);
    pthread_mutex_init(&socket->lock, NULL);
    socket->last = &socket->first;
    socket->drained = 1;
    return socket;
}

static struct letter *take(struct socket *socket)
{
    struct letter *letter = socket->first;

    if (letter && !(socket->first = letter->next))
        socket->last = &socket->first;
    return letter;
}

static void socket_free(struct socket *socket)
{
    struct letter *letter;

    while ((letter = take(socket)))
        free(letter);
    close(socket->fd);
    pthread_mutex_destroy(&socket->lock);
    free(socket);
}

/* The descriptor becomes readable if a receive has found nothing since, and not
 * otherwise; any receive makes it unreadable. A thread that polls too early hangs. */
static void deliver(struct socket *socket, struct letter *letter)
{
    uint64_t one = 1;

    letter->next = NULL;
    pthread_mutex_lock(&socket->lock);
    *socket->last = letter;
    socket->last = &letter->next;
    if (socket->drained)
        CHECK(write(socket->fd, &one, sizeof one) == sizeof one);
    socket->drained = 0;
    pthread_mutex_unlock(&socket->lock);
}

static struct letter *letter_new(size_t bytes)
{
    struct letter *letter = malloc(sizeof *letter + bytes);

    CHECK(letter);
    letter->bytes = bytes;
    letter->more = 0;
    return letter;
}

static void post(struct socket *socket, uint32_t value)
{
    struct letter *letter = letter_new(sizeof value);

    memcpy(letter->data, &value, sizeof value);
    deliver(socket, letter);
}

/* The inside of a message: its letter, NULL for the identity; whether more
 * parts follow. */
struct inside {
    struct letter *letter;
    int more;
};

static struct inside *in(const mooi_zmq_msg *message)
{
    return (struct inside *)(uintptr_t)message->opaque;
}

static int msg_init(mooi_zmq_msg *message)
{
    *in(message) = (struct inside){NULL, 0};
    return 0;
}

static int msg_init_size(mooi_zmq_msg *message, size_t bytes)
{
    *in(message) = (struct inside){letter_new(bytes), 0};
    return 0;
}

static int msg_close(mooi_zmq_msg *message)
{
    free(in(message)->letter);
    return msg_init(message);
}

static int msg_recv(mooi_zmq_msg *message, void *from, int flags)
{
    struct socket *socket = from;
    uint64_t one;

    CHECK(flags == MOOI_ZMQ_DONTWAIT);
    msg_close(message);
    pthread_mutex_lock(&socket->lock);
    if (read(socket->fd, &one, sizeof one) < 0)
        CHECK(errno == EAGAIN);
    if (!socket->first) {
        socket->drained = 1;
        failure = EAGAIN;
        pthread_mutex_unlock(&socket->lock);
        return -1;
    }
    if (!socket->part) {
        *in(message) = (struct inside){NULL, 1};
        socket->part = 1;
    } else {
        struct letter *letter = take(socket);
        *in(message) = (struct inside){letter, letter->more};
        socket->part = letter->more;
    }
    pthread_mutex_unlock(&socket->lock);
    return 0;
}

static int msg_send(mooi_zmq_msg *message, void *to, int flags)
{
    struct socket *socket = to;

    CHECK((flags & ~MOOI_ZMQ_SNDMORE) == MOOI_ZMQ_DONTWAIT);
    if ((failure = atomic_exchange(&socket->error, 0)))
        return -1;
    in(message)->letter->more = flags & MOOI_ZMQ_SNDMORE;
    deliver(socket, in(message)->letter);
    return msg_init(message);
}

static int msg_more(const mooi_zmq_msg *message)
{
    return in(message)->more;
}

static void *msg_data(mooi_zmq_msg *message)
{
    return in(message)->letter->data;
}

static size_t msg_size(const mooi_zmq_msg *message)
{
    return in(message)->letter->bytes;
}

static int get_option(void *of, int option, void *value, size_t *bytes)
{
    struct socket *socket = of;

    CHECK(option == MOOI_ZMQ_FD && *bytes == sizeof(int));
    memcpy(value, &socket->fd, sizeof(int));
    return 0;
}

static int last_error(void)
{
    return failure;
}

/* ---- of the test that runs ---- */

static struct socket *here, *there; /* the inbox's; an outbox's */
static moo_inbox *inbox;
static moo_outbox *outbox; /* the test opens it, if it needs one */

static uint32_t value_of(const moo_turn *turn)
{
    uint32_t value;

    CHECK(turn->bytes == sizeof value);
    memcpy(&value, turn->data, sizeof value);
    return value;
}

static void run(void (*test)(void), const char *name)
{
    alarm(ALARM_S); /* a hang is a failure */
    here = socket_new();
    there = socket_new();
    CHECK(!moo_inbox_open((uintptr_t)here, NULL, 0, 0, &inbox));
    outbox = NULL;
    test();
    moo_inbox_close(inbox);
    moo_inbox_free(inbox); /* an outbox keeps it */
    if (outbox)
        moo_outbox_free(outbox);
    socket_free(here);
    socket_free(there);
    printf("ok %s\n", name);
}

/* ---- letters ---- */

static void letters_come_in_order_until_each_is_handled(void)
{
    const uint64_t *taken = moo_inbox_taken(inbox);
    moo_turn turn = {0};

    for (uint32_t i = 0; i < 200; i++)
        post(here, i);
    for (uint32_t i = 0; i < 200; i++) {
        /* Read thrice: whoever left without handling it lost nothing. */
        for (int again = 0; again < 3; again++) {
            CHECK(moo_turn_wait(inbox, &turn, -1, 1) == MOO_MAIL);
            CHECK(value_of(&turn) == i && *taken < turn.serial);
        }
        uint64_t serial = turn.serial;
        moo_turn_handled(&turn);
        CHECK(*taken == serial);
    }
    CHECK(moo_turn_wait(inbox, &turn, 1000, 1) == MOO_LATE && turn.leads);
    moo_turn_leave(&turn);
    moo_turn_leave(&turn); /* nothing happens */
}

static void a_letter_that_is_being_read_stays_in_memory(void)
{
    moo_turn outer = {0}, inner = {0};

    post(here, 1);
    post(here, 2);
    CHECK(moo_turn_wait(inbox, &outer, -1, 1) == MOO_MAIL);
    /* a finalizer waits, in this very thread, and handles both */
    CHECK(moo_turn_wait(inbox, &inner, -1, 1) == MOO_MAIL);
    CHECK(value_of(&inner) == 1);
    CHECK(moo_turn_handled(&inner) && value_of(&inner) == 2);
    CHECK(!moo_turn_handled(&inner));
    moo_turn_leave(&inner);
    CHECK(value_of(&outer) == 1);
    CHECK(!moo_turn_handled(&outer));
    moo_turn_leave(&outer);
}

static void a_letter_that_is_being_read_outlives_the_close(void)
{
    moo_turn turn = {0};

    post(here, 1);
    post(here, 2);
    CHECK(moo_turn_wait(inbox, &turn, -1, 1) == MOO_MAIL);
    moo_inbox_close(inbox); /* by another thread, before this one has read */
    CHECK(value_of(&turn) == 1);
    CHECK(!moo_turn_handled(&turn)); /* the second one was dropped */
    CHECK(moo_turn_wait(inbox, &turn, -1, 1) == MOO_SHUT);
    moo_turn_leave(&turn);
}

static void the_thread_that_runs_signal_handlers_looks_for_signals(void)
{
    moo_turn turn = {0};

    moo_inbox_free(inbox);
    CHECK(!moo_inbox_open((uintptr_t)here, NULL, 0, (uintptr_t)pthread_self(),
                          &inbox));
    CHECK(moo_turn_wait(inbox, &turn, -1, 1) == MOO_LOOK);
    CHECK(moo_turn_wait(inbox, &turn, MOO_SIGNAL_US + 1, 1) == MOO_LOOK);
    CHECK(moo_turn_wait(inbox, &turn, 1000, 1) == MOO_LATE);
    moo_turn_leave(&turn);
}

static void whoever_would_sleep_looks_again_after_another_has_handled(void)
{
    moo_turn outer = {0}, inner = {0};

    CHECK(moo_turn_wait(inbox, &outer, 0, 1) == MOO_LATE);
    post(here, 1);
    /* a signal handler waits, in this very thread, for what `outer` wants */
    CHECK(moo_turn_wait(inbox, &inner, -1, 1) == MOO_MAIL);
    CHECK(!moo_turn_handled(&inner));
    CHECK(moo_turn_wait(inbox, &inner, 0, 1) == MOO_LATE); /* it knows */
    moo_turn_leave(&inner);
    CHECK(moo_turn_wait(inbox, &outer, -1, 1) == MOO_LOOK);
    moo_turn_leave(&outer);
    /* A turn may wait anew, and finds out what it has missed. */
    moo_inbox_wake(inbox);
    CHECK(moo_turn_wait(inbox, &outer, -1, 1) == MOO_LOOK);
    CHECK(moo_turn_wait(inbox, &outer, 0, 1) == MOO_LATE);
    moo_turn_leave(&outer);
}

/* ---- waiting threads ---- */

static struct waiter {
    uint32_t number;
    atomic_int done; /* replies for this one, not yet taken */
    pthread_mutex_t lock;
    moo_turn *turn; /* to be woken when `done` */
    pthread_t thread;
} waiters[WAITERS];

static void complete(struct waiter *waiter)
{
    atomic_fetch_add(&waiter->done, 1);
    pthread_mutex_lock(&waiter->lock);
    if (waiter->turn)
        moo_turn_wake(waiter->turn);
    pthread_mutex_unlock(&waiter->lock);
}

static void listen_with(struct waiter *waiter, moo_turn *turn)
{
    pthread_mutex_lock(&waiter->lock);
    waiter->turn = turn;
    pthread_mutex_unlock(&waiter->lock);
}

/* The leader's work for all; with `turn`, after its wait. */
static void lead(const moo_turn *turn)
{
    static atomic_int leaders;

    if (!turn->leads)
        return;
    CHECK(atomic_fetch_add(&leaders, 1) == 0);
    sched_yield();
    atomic_fetch_sub(&leaders, 1);
}

/* As process/poller.py waits: handle what comes, for whomever it is. */
static int wait_for_reply(struct waiter *waiter, int64_t timeout_us)
{
    moo_turn turn = {0};
    int woken = 0, more, event = 0;

    while (!atomic_load(&waiter->done) && event != MOO_SHUT &&
           event != MOO_LATE) {
        event = moo_turn_wait(inbox, &turn, timeout_us, woken);
        lead(&turn);
        if (event == MOO_LED) {
            CHECK(!turn.leads);
            listen_with(waiter, &turn);
            woken = 1;
        }
        for (more = event == MOO_MAIL; more; more = moo_turn_handled(&turn))
            complete(&waiters[value_of(&turn)]);
    }
    listen_with(waiter, NULL);
    moo_turn_leave(&turn);
    return event != MOO_SHUT && event != MOO_LATE;
}

static void *ask_and_wait(void *of)
{
    struct waiter *waiter = of;

    for (int i = 0; i < ROUNDS; i++) {
        post(here, waiter->number);
        CHECK(wait_for_reply(waiter, -1));
        atomic_fetch_sub(&waiter->done, 1);
    }
    return NULL;
}

static void *look_and_wake(void *unused)
{
    moo_turn turn;

    for (int i = 0; i < ROUNDS; i++) {
        int event;
        memset(&turn, 0, sizeof turn);
        event = moo_turn_wait(inbox, &turn, 0, 0);
        lead(&turn);
        CHECK(turn.leads || event == MOO_LED);
        if (event == MOO_MAIL) {
            uint32_t number = value_of(&turn);
            moo_turn_handled(&turn);
            complete(&waiters[number]);
        }
        moo_turn_leave(&turn);
        moo_inbox_led(inbox);
        moo_inbox_wake(inbox);
    }
    return unused;
}

static void *wait_once(void *of)
{
    return wait_for_reply(of, -1) ? of : NULL;
}

static void start_waiters(void *(*wait)(void *), uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        waiters[i] = (struct waiter){.number = i};
        pthread_mutex_init(&waiters[i].lock, NULL);
        CHECK(!pthread_create(&waiters[i].thread, NULL, wait, &waiters[i]));
    }
}

static void *result_of(const struct waiter *waiter)
{
    void *got;

    CHECK(!pthread_join(waiter->thread, &got));
    return got;
}

static void every_thread_that_waits_gets_its_letters(void)
{
    pthread_t looker;

    start_waiters(ask_and_wait, 0, WAITERS);
    CHECK(!pthread_create(&looker, NULL, look_and_wake, NULL));
    for (int i = 0; i < WAITERS; i++)
        result_of(&waiters[i]);
    CHECK(!pthread_join(looker, NULL));
    for (int i = 0; i < WAITERS; i++)
        CHECK(!atomic_load(&waiters[i].done));
}

static void a_leader_that_does_not_come_back_is_overtaken(void)
{
    moo_turn away = {0};

    post(here, 1); /* handled by nobody, and so by whoever overtakes */
    CHECK(moo_turn_wait(inbox, &away, -1, 1) == MOO_MAIL);
    CHECK(moo_inbox_led(inbox));
    start_waiters(wait_once, 1, 2);
    CHECK(result_of(&waiters[1]) && atomic_load(&waiters[1].done) == 1);
    CHECK(value_of(&away) == 1);
    CHECK(!moo_turn_handled(&away));
    moo_turn_leave(&away);
}

static void the_end_ends_all_waits(void)
{
    moo_turn turn = {0};

    start_waiters(wait_once, 0, WAITERS);
    CHECK_SOON(moo_inbox_led(inbox));
    moo_inbox_close(inbox);
    for (int i = 0; i < WAITERS; i++)
        CHECK(!result_of(&waiters[i]));
    CHECK(moo_turn_wait(inbox, &turn, -1, 1) == MOO_SHUT);
    moo_turn_leave(&turn);
    CHECK(moo_inbox_put(inbox, "x", 1) == (moo_err)MOO_ECLOSED);
}

static void what_is_put_wakes_whoever_waits(void)
{
    start_waiters(wait_once, 0, WAITERS);
    for (uint32_t i = WAITERS; i--;)
        CHECK(!moo_inbox_put(inbox, (char *)&i, sizeof i));
    for (int i = 0; i < WAITERS; i++)
        CHECK(result_of(&waiters[i]));
}

/* ---- outboxes ---- */

struct record {
    uint32_t thread, number;
};

static void *send_many(void *of)
{
    int waits;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct record record = {*(uint32_t *)of, i};
        if (i % 7 == 3)
            CHECK(!moo_outbox_send(outbox, (char *)&record, sizeof record));
        else
            CHECK(!moo_outbox_queue(outbox, (char *)&record, sizeof record,
                                    &waits));
        if (i % 50 == 49)
            moo_inbox_flush(inbox);
    }
    return NULL;
}

static void records_of_a_thread_go_out_in_their_order(void)
{
    pthread_t threads[WAITERS];
    uint32_t next[WAITERS] = {0}, numbers[WAITERS];
    struct letter *letter;

    CHECK(!moo_outbox_open(inbox, (uintptr_t)there, PREFIX, 4, &outbox));
    for (uint32_t i = 0; i < WAITERS; i++) {
        numbers[i] = i;
        CHECK(!pthread_create(&threads[i], NULL, send_many, &numbers[i]));
    }
    for (int i = 0; i < WAITERS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    moo_inbox_flush(inbox);
    while ((letter = take(there))) {
        CHECK(letter->bytes >= 4 && !memcmp(letter->data, PREFIX, 4));
        CHECK((letter->bytes - 4) % sizeof(struct record) == 0);
        for (size_t at = 4; at < letter->bytes; at += sizeof(struct record)) {
            struct record record;
            memcpy(&record, letter->data + at, sizeof record);
            CHECK(record.thread < WAITERS);
            CHECK(record.number == next[record.thread]++);
        }
        free(letter);
    }
    for (int i = 0; i < WAITERS; i++)
        CHECK(next[i] == ROUNDS);
}

static void take_one(struct socket *from, const char *expected)
{
    struct letter *letter = take(from);

    CHECK(letter && letter->bytes == strlen(expected));
    CHECK(!memcmp(letter->data, expected, letter->bytes));
    free(letter);
}

static void next_is(moo_turn *turn, int event, const char *expected)
{
    CHECK(event == MOO_MAIL && turn->bytes == strlen(expected));
    CHECK(!memcmp(turn->data, expected, turn->bytes));
}

static void a_refused_send_says_so_and_the_next_one_goes_out(void)
{
    CHECK(!moo_outbox_open(inbox, (uintptr_t)there, PREFIX, 4, &outbox));
    atomic_store(&there->error, EINTR); /* tried again */
    CHECK(!moo_outbox_send(outbox, "a", 1));
    atomic_store(&there->error, EAGAIN);
    CHECK(moo_outbox_send(outbox, "b", 1) == MOO_ESYS && errno == EAGAIN);
    CHECK(!moo_outbox_send(outbox, "c", 1));
    moo_outbox_close(outbox);
    CHECK(!moo_outbox_send(outbox, "d", 1)); /* dropped */
    take_one(there, PREFIX "a");
    take_one(there, PREFIX "c");
    CHECK(!take(there));
}

static void what_is_held_goes_out_in_order_once_there_is_a_connection(void)
{
    struct socket *one = there, *other = socket_new();
    int waits;

    CHECK(!moo_outbox_open(inbox, 0, PREFIX, 4, &outbox));
    CHECK(!moo_outbox_send(outbox, "-", 1)); /* neither held nor connected */
    moo_outbox_hold(outbox);
    CHECK(!moo_outbox_send(outbox, "a", 1));
    CHECK(!moo_outbox_queue(outbox, "b", 1, &waits) && !waits);
    moo_inbox_flush(inbox);
    CHECK(!moo_outbox_lead(outbox, "first", 5));
    CHECK(moo_outbox_held(outbox) == 3);
    CHECK(!moo_outbox_connect(outbox, (uintptr_t)one, "epo1", 0));
    CHECK(moo_outbox_held(outbox) == 0);
    CHECK(moo_outbox_lead(outbox, "late", 4) == MOO_ECLOSED);
    CHECK(!moo_outbox_send(outbox, "c", 1));
    CHECK(moo_outbox_connect(outbox, (uintptr_t)other, "epo2", 0) ==
          MOO_ECLOSED);
    CHECK(!moo_outbox_queue(outbox, "d", 1, &waits) && waits);
    moo_outbox_hold(outbox); /* the connection broke */
    CHECK(!moo_outbox_send(outbox, "e", 1));
    CHECK(!moo_outbox_connect(outbox, (uintptr_t)other, "epo2", 0));
    moo_outbox_hold(outbox);
    CHECK(!moo_outbox_send(outbox, "f", 1));
    moo_outbox_drop(outbox);
    CHECK(!moo_outbox_held(outbox));
    moo_outbox_close(outbox);
    CHECK(moo_outbox_connect(outbox, (uintptr_t)one, "epo3", 0) ==
          MOO_ECLOSED);
    take_one(one, "epo1firstab");
    take_one(one, "epo1c");
    take_one(other, "epo2de");
    CHECK(!take(one) && !take(other));
    socket_free(other);
}

static void a_message_in_parts_comes_as_one_letter(void)
{
    moo_turn turn = {0};

    CHECK(!moo_outbox_open(inbox, 0, PREFIX, 4, &outbox));
    moo_outbox_hold(outbox);
    CHECK(!moo_outbox_send(outbox, "ab", 2));
    CHECK(!moo_outbox_connect(outbox, (uintptr_t)here, PREFIX, 3));
    CHECK(!moo_outbox_send(outbox, "cdefghi", 7));
    CHECK(!moo_outbox_send(outbox, "jk", 2)); /* ends with a part's end */
    next_is(&turn, moo_turn_wait(inbox, &turn, -1, 1), PREFIX "ab");
    next_is(&turn, moo_turn_handled(&turn) ? MOO_MAIL : 0, PREFIX "cdefghi");
    next_is(&turn, moo_turn_handled(&turn) ? MOO_MAIL : 0, PREFIX "jk");
    CHECK(!moo_turn_handled(&turn));
    moo_turn_leave(&turn);
}

static void an_event_loop_is_told_of_what_is_left_in_the_socket(void)
{
    struct pollfd told = {moo_inbox_loops(inbox, 1), POLLIN, 0};
    moo_turn turn = {0};
    uint32_t count = 0;
    int more;

    for (uint32_t i = 0; i < 100; i++) /* more than are received in one go */
        post(here, i);
    CHECK(moo_turn_wait(inbox, &turn, -1, 1) == MOO_MAIL);
    for (more = 1; more; more = moo_turn_handled(&turn))
        CHECK(value_of(&turn) == count++);
    CHECK(count < 100 && !poll(&told, 1, 0));
    moo_turn_leave(&turn);
    CHECK(poll(&told, 1, 0) == 1);
}

static void what_waits_leaves_before_the_leader_sleeps(void)
{
    moo_turn turn = {0};
    int waits;

    /* To itself: it hangs if its record does not leave. */
    CHECK(!moo_outbox_open(inbox, (uintptr_t)here, PREFIX, 4, &outbox));
    CHECK(!moo_outbox_queue(outbox, "a", 1, &waits) && waits);
    CHECK(moo_turn_wait(inbox, &turn, 0, 1) == MOO_LATE); /* does not sleep */
    next_is(&turn, moo_turn_wait(inbox, &turn, -1, 1), PREFIX "a");
    CHECK(!moo_turn_handled(&turn));
    moo_turn_leave(&turn);
}

#define RUN_MAIL(test) run(test, #test)

int main(void)
{
    mooi_zmq = (struct mooi_zmq){
        msg_init, msg_init_size, msg_recv, msg_send,   msg_close,
        msg_more, msg_data,      msg_size, get_option, last_error,
    };
    CHECK(!moo_zmq_find()); /* it has been found */
    RUN_MAIL(letters_come_in_order_until_each_is_handled);
    RUN_MAIL(a_letter_that_is_being_read_stays_in_memory);
    RUN_MAIL(a_letter_that_is_being_read_outlives_the_close);
    RUN_MAIL(the_thread_that_runs_signal_handlers_looks_for_signals);
    RUN_MAIL(whoever_would_sleep_looks_again_after_another_has_handled);
    RUN_MAIL(every_thread_that_waits_gets_its_letters);
    RUN_MAIL(a_leader_that_does_not_come_back_is_overtaken);
    RUN_MAIL(the_end_ends_all_waits);
    RUN_MAIL(what_is_put_wakes_whoever_waits);
    RUN_MAIL(records_of_a_thread_go_out_in_their_order);
    RUN_MAIL(a_refused_send_says_so_and_the_next_one_goes_out);
    RUN_MAIL(what_is_held_goes_out_in_order_once_there_is_a_connection);
    RUN_MAIL(a_message_in_parts_comes_as_one_letter);
    RUN_MAIL(an_event_loop_is_told_of_what_is_left_in_the_socket);
    RUN_MAIL(what_waits_leaves_before_the_leader_sleeps);
    return 0;
}
