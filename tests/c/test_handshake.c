/* SPDX-License-Identifier: MIT */
/*
 * Dials and handshakes over real sockets on this machine: who gets in, who does
 * not, and what both sides are told.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "check.h"
#include "core/wire.h"
#include "transport/tcp/dial.h"
#include "transport/tcp/handshake.h"

static const uint8_t key[MOOI_KEY_BYTES] = "the session key";
static const uint8_t other_key[MOOI_KEY_BYTES] = "another session";
static const uint8_t here[MOOI_HOST_BYTES] = "here";
static const uint8_t there[MOOI_HOST_BYTES] = "there";

struct pair {
    int connector, acceptor;
};

static struct pair join(const char *bind_to)
{
    struct mooi_address address;
    struct pollfd wait = {.events = POLLIN};
    struct pair pair;

    CHECK(mooi_socket_listen(bind_to, &wait.fd) == MOO_OK);
    CHECK(mooi_socket_addresses(wait.fd, &address, 1) == 1);
    CHECK(mooi_socket_connect(&address, &pair.connector) == MOO_OK);
    CHECK(poll(&wait, 1, 5000) == 1);
    CHECK(mooi_socket_accept(wait.fd, &pair.acceptor) == MOO_OK);
    close(wait.fd);
    wait.fd = pair.connector;
    wait.events = POLLOUT;
    CHECK(poll(&wait, 1, 5000) == 1);
    CHECK(mooi_socket_connected(pair.connector) == MOO_OK);
    return pair;
}

static void part(struct pair *pair)
{
    close(pair->connector);
    close(pair->acceptor);
}

static const struct mooi_hello from_7_to_9 = {
    .from = 7, .to = 9, .purpose = MOOI_PURPOSE_DATA,
    .index = 2, .count = 5, .token = 0x123456789abcdefu, .host = "there"};

struct outcome {
    moo_err connector, acceptor;
};

/* Both sides, to their ends. */
static struct outcome shake(struct mooi_handshake *c, struct mooi_handshake *a,
                            struct pair *pair)
{
    struct outcome end = {MOO_ETIMEOUT, MOO_ETIMEOUT};

    while (end.connector == MOO_ETIMEOUT || end.acceptor == MOO_ETIMEOUT) {
        struct pollfd wait[2] = {
            {pair->connector, mooi_handshake_wants(c), 0},
            {pair->acceptor, mooi_handshake_wants(a), 0}};
        if (end.connector != MOO_ETIMEOUT)
            wait[0].fd = -1;
        if (end.acceptor != MOO_ETIMEOUT)
            wait[1].fd = -1;
        CHECK(poll(wait, 2, 5000) > 0);
        if (wait[0].revents) {
            end.connector = mooi_handshake_step(c, pair->connector);
            if (end.connector < 0 && end.connector != MOO_ETIMEOUT)
                shutdown(pair->connector, SHUT_WR);
        }
        if (wait[1].revents) {
            end.acceptor = mooi_handshake_step(a, pair->acceptor);
            if (end.acceptor < 0 && end.acceptor != MOO_ETIMEOUT)
                shutdown(pair->acceptor, SHUT_WR);
        }
    }
    return end;
}

static struct outcome shake_hands(const uint8_t *their_key, uint64_t acceptor,
                                  struct mooi_handshake *a)
{
    struct mooi_handshake c;
    struct pair pair = join(NULL);
    struct outcome end;

    CHECK(mooi_handshake_connect(&c, key, &from_7_to_9) == MOO_OK);
    CHECK(mooi_handshake_accept(a, their_key, acceptor, here,
                                MOOI_PURPOSE_DATA) == MOO_OK);
    end = shake(&c, a, &pair);
    if (end.connector == MOO_OK) {
        CHECK(c.challenge.from == 9);
        CHECK(!memcmp(c.challenge.host, here, sizeof here));
    }
    part(&pair);
    return end;
}

static void two_of_a_session_learn_who_the_other_is(void)
{
    struct mooi_handshake a;
    struct outcome end = shake_hands(key, 9, &a);

    CHECK(end.connector == MOO_OK && end.acceptor == MOO_OK);
    CHECK(a.hello.from == 7 && a.hello.index == 2 && a.hello.count == 5);
    CHECK(a.hello.token == from_7_to_9.token);
    CHECK(!memcmp(a.hello.host, there, sizeof there));
}

static void another_key_is_an_error_of_authentication_on_both_sides(void)
{
    struct mooi_handshake a;
    struct outcome end = shake_hands(other_key, 9, &a);

    CHECK(end.connector == MOO_EAUTH && end.acceptor == MOO_EAUTH);
}

static void a_call_for_somebody_else_is_refused_on_both_sides(void)
{
    struct mooi_handshake a;
    struct outcome end = shake_hands(key, 8, &a);

    CHECK(end.connector == MOO_EPROTO && end.acceptor == MOO_EPROTO);
}

/* The acceptor's result for these bytes, and the head of its answer. */
static moo_err answer_to(const uint8_t *bytes, size_t length, uint8_t head[8])
{
    struct mooi_handshake a;
    struct pair pair = join(NULL);
    struct pollfd wait = {pair.acceptor, POLLIN, 0};
    moo_err err = MOO_ETIMEOUT;

    CHECK(mooi_handshake_accept(&a, key, 9, here, MOOI_PURPOSE_DATA) == MOO_OK);
    CHECK(send(pair.connector, bytes, length, 0) == (ssize_t)length);
    shutdown(pair.connector, SHUT_WR);
    while (err == MOO_ETIMEOUT) {
        wait.events = mooi_handshake_wants(&a);
        CHECK(poll(&wait, 1, 5000) == 1);
        err = mooi_handshake_step(&a, pair.acceptor);
    }
    close(pair.acceptor);
    memset(head, 0, 8);
    if (recv(pair.connector, head, 8, MSG_WAITALL) < 0)
        CHECK(errno == ECONNRESET);
    close(pair.connector);
    return err;
}

static void another_version_is_told_so_in_a_head_that_it_can_read(void)
{
    uint8_t bytes[MOOI_HELLO_BYTES], head[8];

    for (size_t length = 8; length <= sizeof bytes; length += 36) {
        mooi_hello_pack(&from_7_to_9, bytes);
        bytes[4] = MOOI_HANDSHAKE_VERSION + 1;
        CHECK(answer_to(bytes, length, head) == MOO_EVERSION);
        CHECK(!memcmp(head, "MOOT", 4) && head[4] == MOOI_HANDSHAKE_VERSION);
        CHECK(head[6] == -MOO_EVERSION);
    }
}

/* An overheard handshake is worth nothing in the next handshake. */
static void replayed_bytes_are_refused(void)
{
    uint8_t bytes[MOOI_HELLO_BYTES + MOOI_PROOF_BYTES], head[8];
    struct mooi_handshake c, a;
    struct pair pair = join(NULL);

    CHECK(mooi_handshake_connect(&c, key, &from_7_to_9) == MOO_OK);
    CHECK(mooi_handshake_accept(&a, key, 9, here, MOOI_PURPOSE_DATA) == MOO_OK);
    memcpy(bytes, c.bytes, MOOI_HELLO_BYTES);
    CHECK(mooi_handshake_step(&c, pair.connector) == MOO_ETIMEOUT);
    CHECK(mooi_handshake_step(&a, pair.acceptor) == MOO_ETIMEOUT);
    CHECK(mooi_handshake_step(&c, pair.connector) == MOO_ETIMEOUT);
    CHECK(recv(pair.acceptor, bytes + MOOI_HELLO_BYTES, MOOI_PROOF_BYTES,
               MSG_PEEK | MSG_WAITALL) == MOOI_PROOF_BYTES);
    CHECK(mooi_handshake_step(&a, pair.acceptor) == MOO_OK);
    CHECK(mooi_handshake_step(&c, pair.connector) == MOO_OK);
    part(&pair);
    CHECK(answer_to(bytes, sizeof bytes, head) == MOO_EAUTH);
}

/* ---- dialing ---- */

static struct mooi_address at(const char *ip, uint16_t port)
{
    struct mooi_address address;

    CHECK(mooi_address_parse(ip, port, &address) == MOO_OK);
    return address;
}

/* A port where nobody listens: one that was ours until now. */
static uint16_t deserted_port(void)
{
    struct mooi_address address;
    int listener;

    CHECK(mooi_socket_listen(NULL, &listener) == MOO_OK);
    CHECK(mooi_socket_addresses(listener, &address, 1) == 1);
    close(listener);
    return address.port;
}

/* Where nobody answers: a listener whose queue is full. */
struct hole {
    int listener, fill[4];
    struct mooi_address address;
};

static struct hole dig(void)
{
    struct hole hole;

    CHECK(mooi_socket_listen("127.0.0.1", &hole.listener) == MOO_OK);
    CHECK(!listen(hole.listener, 0));
    CHECK(mooi_socket_addresses(hole.listener, &hole.address, 1) == 1);
    for (int i = 0; i < 4; i++)
        CHECK(mooi_socket_connect(&hole.address, &hole.fill[i]) == MOO_OK);
    return hole;
}

static void fill_in(struct hole *hole)
{
    for (int i = 0; i < 4; i++)
        close(hole->fill[i]);
    close(hole->listener);
}

static moo_err dial_to_its_end(struct mooi_dial *dial, int *fd, size_t *which)
{
    for (;;) {
        struct pollfd wait = {dial->poll, POLLIN, 0};
        moo_err err = mooi_dial_step(dial, fd, which);
        if (err != MOO_ETIMEOUT)
            return err;
        poll(&wait, 1, mooi_dial_wait_ms(dial));
    }
}

static void a_dial_falls_over_to_the_address_that_answers(void)
{
    struct mooi_address address[4];
    struct mooi_dial dial;
    struct hole hole = dig();
    int listener, fd;
    size_t which;

    CHECK(mooi_socket_listen(NULL, &listener) == MOO_OK);
    address[0] = at("127.0.0.1", deserted_port());
    address[1] = at("::1", deserted_port());
    address[2] = hole.address;
    CHECK(mooi_socket_addresses(listener, &address[3], 1) == 1);
    CHECK(mooi_dial_begin(&dial, address, 4) == MOO_OK);
    CHECK(dial_to_its_end(&dial, &fd, &which) == MOO_OK);
    CHECK(which == 3);
    close(fd);
    close(listener);
    mooi_dial_end(&dial);
    fill_in(&hole);
}

/* The kernel would ask again after a second; both attempts may be answered. */
static void a_dial_asks_again_where_nobody_answered(void)
{
    struct hole hole = dig();
    struct mooi_dial dial;
    int fd, taken;
    size_t which;

    CHECK(mooi_dial_begin(&dial, &hole.address, 1) == MOO_OK);
    while (dial.older[0] < 0) {
        struct pollfd wait = {dial.poll, POLLIN, 0};
        CHECK(mooi_dial_step(&dial, &fd, &which) == MOO_ETIMEOUT);
        poll(&wait, 1, mooi_dial_wait_ms(&dial));
    }
    CHECK(dial.fd[0] >= 0 && dial.fd[0] != dial.older[0]);
    while ((taken = accept(hole.listener, NULL, NULL)) >= 0)
        close(taken);
    CHECK(dial_to_its_end(&dial, &fd, &which) == MOO_OK);
    CHECK(which == 0 && !mooi_dial_has_others(&dial, which));
    close(fd);
    mooi_dial_end(&dial);
    fill_in(&hole);
}

/* A peer that accepts and says nothing is another program, or stopped. */
static void a_patient_dial_comes_back_to_who_was_late(void)
{
    struct mooi_address address[2];
    struct mooi_dial dial;
    int listener, fd;
    size_t which;

    CHECK(mooi_socket_listen(NULL, &listener) == MOO_OK);
    CHECK(mooi_socket_addresses(listener, address, 1) == 1);
    address[1] = at("127.0.0.1", deserted_port());
    for (int patient = 0; patient < 2; patient++) {
        CHECK(mooi_dial_begin(&dial, address, 2) == MOO_OK);
        dial.patient = patient;
        CHECK(dial_to_its_end(&dial, &fd, &which) == MOO_OK);
        CHECK(which == 0 && mooi_dial_has_others(&dial, which));
        close(fd);
        mooi_dial_blame(&dial, which, MOO_ETIMEOUT);
        CHECK(dial_to_its_end(&dial, &fd, &which) ==
              (patient ? MOO_OK : MOO_EPEER));
        if (patient) {
            CHECK(which == 0);
            close(fd);
            mooi_dial_blame(&dial, which, MOO_EAUTH);
            CHECK(dial_to_its_end(&dial, &fd, &which) == MOO_EPEER);
        }
        mooi_dial_end(&dial);
    }
    close(listener);
}

static void listeners_are_local_unless_told_otherwise(void)
{
    struct mooi_address address[8];
    int listener;
    size_t count;

    CHECK(mooi_socket_listen(NULL, &listener) == MOO_OK);
    CHECK(mooi_socket_addresses(listener, address, 8) == 1);
    CHECK(address[0].ip[0] == 127 || address[0].family == 6);
    close(listener);
    CHECK(mooi_socket_listen("*", &listener) == MOO_OK);
    count = mooi_socket_addresses(listener, address, 8);
    CHECK(count >= 1);
    for (size_t i = 1; i < count; i++)
        CHECK(address[i - 1].family <= address[i].family);
    close(listener);
    CHECK(mooi_socket_listen("nonsense", &listener) == MOO_EINVAL);
}

static int open_files(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

int main(void)
{
    int before = open_files();

    RUN(two_of_a_session_learn_who_the_other_is);
    RUN(another_key_is_an_error_of_authentication_on_both_sides);
    RUN(a_call_for_somebody_else_is_refused_on_both_sides);
    RUN(another_version_is_told_so_in_a_head_that_it_can_read);
    RUN(replayed_bytes_are_refused);
    RUN(a_dial_falls_over_to_the_address_that_answers);
    RUN(a_dial_asks_again_where_nobody_answered);
    RUN(a_patient_dial_comes_back_to_who_was_late);
    RUN(listeners_are_local_unless_told_otherwise);
    CHECK(open_files() == before);
    return 0;
}
