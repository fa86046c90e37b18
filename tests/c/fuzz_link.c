/* SPDX-License-Identifier: MIT */
/*
 * Any bytes over a link that stands, to an engine that owns it or imports by
 * it: the link ends, every fetch ends once, and what was lent is given back.
 * Built with -fsanitize=fuzzer by `make fuzz`; by gcc it runs its own random
 * inputs.
 *
 * The first byte of an input says which side the engine plays (1), which of
 * two connections gets the rest (2), and whether it fetches meanwhile (4).
 */
#include <poll.h>
#include <sys/socket.h>

#include "tcp_fixture.h"
#include "transport/tcp/handshake.h"

#define LARGE (100 << 10) /* not small, by tcp.h */

static struct side us;
static int listener = -1; /* ours, where the engine connects to */
static struct mooi_address listens_at;
static char lent[LARGE], small[9], large[LARGE];

static void begin_once(void)
{
    struct mooi_tcp_options options = {.id = 2, .stripes = 1, .threads = 2};

    if (listener >= 0)
        return;
    memcpy(options.key, session_key, sizeof session_key);
    open_side(&us, 2, &options);
    own(&us, 0, lent, sizeof lent);
    CHECK(mooi_socket_listen(NULL, &listener) == MOO_OK);
    CHECK(mooi_socket_addresses(listener, &listens_at, 1) == 1);
}

static void finish(struct mooi_handshake *handshake, int fd)
{
    moo_err err;

    while ((err = mooi_handshake_step(handshake, fd)) == MOO_ETIMEOUT) {
        struct pollfd wait = {fd, mooi_handshake_wants(handshake), 0};
        CHECK(poll(&wait, 1, 5000) == 1);
    }
    CHECK(err == MOO_OK);
}

/* The engine imports: we connect, as owner. */
static void call_engine(int fd[2])
{
    static uint64_t token;
    struct mooi_hello hello = {.from = 1, .to = 2, .count = 2,
                               .purpose = MOOI_PURPOSE_DATA,
                               .token = ++token};
    struct mooi_address address;
    struct mooi_handshake handshake;

    CHECK(mooi_tcp_addresses(us.engine, &address, 1) == 1);
    for (uint16_t i = 0; i < 2; i++) {
        struct pollfd wait = {.events = POLLOUT};
        hello.index = i;
        CHECK(mooi_socket_connect(&address, &fd[i]) == MOO_OK);
        wait.fd = fd[i];
        CHECK(poll(&wait, 1, 5000) == 1);
        CHECK(mooi_handshake_connect(&handshake, session_key, &hello) ==
              MOO_OK);
        finish(&handshake, fd[i]);
    }
}

/* The engine owns: it connects, and we are the importer. */
static void be_called(int fd[2])
{
    static const uint8_t host[MOOI_HOST_BYTES];
    struct mooi_handshake handshake;
    struct mooi_tcp_link *link;

    CHECK(mooi_tcp_connect(us.engine, 1, &listens_at, 1, &link) == MOO_OK);
    for (int i = 0; i < 2; i++) {
        struct pollfd wait = {listener, POLLIN, 0};
        CHECK(poll(&wait, 1, 5000) == 1);
        CHECK(mooi_socket_accept(listener, &fd[i]) == MOO_OK);
        CHECK(mooi_handshake_accept(&handshake, session_key, 1, host,
                                    MOOI_PURPOSE_DATA) == MOO_OK);
        finish(&handshake, fd[i]);
    }
}

/* No port is to be kept back for what may still be under way. */
static void hang_up(int fd)
{
    mooi_socket_abandon(fd);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wanted wanted[2];
    int fd[2], owns, which, fetches, ups, downs;

    begin_once();
    if (size < 2)
        return 0;
    owns = data[0] & 1;
    which = data[0] >> 1 & 1;
    fetches = !owns && data[0] & 4;
    ups = count_of(&us, &us.ups);
    downs = count_of(&us, &us.downs);
    (owns ? be_called : call_engine)(fd);
    await(&us, &us.ups, ups + 1);
    if (fetches) {
        CHECK(begin(&us, &wanted[0], 0, 0, sizeof small, small) == MOO_OK);
        CHECK(begin(&us, &wanted[1], 0, 0, sizeof large, large) == MOO_OK);
    }
    if (send(fd[which], data + 1, size - 1, MSG_NOSIGNAL) < 0)
        abort();
    hang_up(fd[which]); /* first, or the other's end would be the link's */
    await(&us, &us.downs, downs + 1);
    hang_up(fd[!which]);
    for (int i = 0; fetches && i < 2; i++)
        end(&wanted[i]);
    if (count_of(&us, &us.sources) != count_of(&us, &us.sourced))
        abort();
    return 0;
}

#ifndef FUZZER
#include "transport/tcp/message.h"

static uint32_t some(uint32_t below)
{
    return (uint32_t)random() % below;
}

static size_t some_message(uint8_t *out)
{
    struct mooi_tcp_message message = {
        .kind = (enum mooi_tcp_kind)(1 + some(6)), .tag = some(3),
        .length = some(2) ? 9 : some(200), .error = MOO_ESTALE,
        .name = {some(2), 7, 1}, .offset = some(100)};
    size_t bytes = MOOI_TCP_HEAD_BYTES;

    if (message.kind == MOOI_TCP_CONTROL)
        message.length++;
    mooi_tcp_message_pack(&message, out);
    if (message.kind == MOOI_TCP_CONTROL || message.kind == MOOI_TCP_DATA)
        bytes += message.length;
    if (some(8) == 0)
        out[some(MOOI_TCP_HEAD_BYTES)] ^= (uint8_t)(1 << some(8));
    return bytes;
}

static void whatever_comes_ends_cleanly(void)
{
    srandom(1);
    for (int i = 0; i < 200; i++) {
        uint8_t data[8 * 256] = {(uint8_t)i};
        size_t size = 1;
        for (uint32_t left = 1 + some(7); left; left--)
            size += some_message(data + size);
        LLVMFuzzerTestOneInput(data, size - some(size));
    }
}

int main(void)
{
    RUN(whatever_comes_ends_cleanly);
    close(listener);
    close_side(&us);
    return 0;
}
#endif
