/* SPDX-License-Identifier: MIT */
/*
 * The TCP engine, two of them in this process: values, order, failures that
 * stay where they belong, and what is told to whom.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "core/crc32c.h"
#include "tcp_fixture.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/message.h"

#define MB ((size_t)1 << 20)

static struct side owner, importer;

/* The contents of the owner's slab 0, and as much memory to fetch into. */
static char *memory, *into;

UNWATCHED static void fill(char *at, size_t bytes)
{
    uint64_t x = bytes * 2654435761u + 1;

    for (size_t i = 0; i < bytes; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        at[i] = (char)(x >> 56);
    }
    TELL_WRITTEN(at, bytes);
}

static void open_pair(const struct mooi_tcp_options *special, size_t bytes)
{
    memory = malloc(bytes + 1);
    into = malloc(bytes + 1);
    CHECK(memory && into);
    fill(memory, bytes);
    open_side(&owner, 1, special);
    open_side(&importer, 2, special);
    own(&owner, 0, memory, bytes);
    connect_sides(&owner, &importer);
}

static void close_pair(void)
{
    int downs = count_of(&importer, &importer.downs);

    close_side(&owner);
    await(&importer, &importer.downs, downs + 1);
    close_side(&importer);
    free(memory);
    free(into);
}

static struct mooi_tcp_options with(uint32_t stripes, int checksum)
{
    struct mooi_tcp_options options = {.stripes = stripes,
                                       .checksum = checksum};

    memcpy(options.key, session_key, sizeof session_key);
    return options;
}

static moo_err fetch_here(uint64_t offset, uint64_t length)
{
    return fetch(&importer, 0, offset, length, into);
}

/* ---- values ---- */

static void check_value(uint64_t offset, uint64_t length)
{
    into[length] = 42;
    CHECK(fetch_here(offset, length) == MOO_OK);
    CHECK(!memcmp(into, memory + offset, length));
    CHECK(into[length] == 42);
}

static void values_of_all_sizes(const struct mooi_tcp_options *special)
{
    static const uint64_t sizes[] = {0,         1,           31,     32,
                                     33,        4095,        65535,  65536,
                                     65537,     512 << 10,   (512 << 10) + 1,
                                     MB - 1,    3 * MB + 17, 20 * MB};

    open_pair(special, 20 * MB + 64);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_value(0, sizes[i]);
        check_value(i % 2 ? 64 : 7, sizes[i]);
    }
    close_pair();
}

static void values_arrive_over_any_number_of_stripes_with_checksums(void)
{
    for (uint32_t stripes = 1; stripes <= MOO_STRIPES_MAX; stripes *= 4) {
        struct mooi_tcp_options options = with(stripes, 1);
        values_of_all_sizes(&options);
    }
}

static void bulk_is_moved_by_so_many_threads(void)
{
    struct mooi_tcp_options options = with(6, 0);

    for (uint32_t count = 1; count <= 3; count++) {
        options.threads = count;
        open_pair(&options, 64 * MB);
        check_value(0, 64 * MB);
        CHECK(owner.askers == (int)count);
        close_pair();
    }
}

static void a_small_fetch_does_not_wait_for_a_large_one(void)
{
    struct wanted large;
    char small[4096];

    open_pair(NULL, 256 * MB);
    CHECK(begin(&importer, &large, 0, 0, 256 * MB, into) == MOO_OK);
    CHECK(fetch(&importer, 0, 0, sizeof small, small) == MOO_OK);
    CHECK(!count_of(&importer, &large.done));
    CHECK(end(&large) == MOO_OK);
    close_pair();
}

static void a_refused_lease_fails_its_fetch_only(void)
{
    struct wanted good, bad;

    open_pair(NULL, 8 * MB);
    own(&owner, 0, memory, 4 * MB);
    CHECK(begin(&importer, &good, 0, 0, 4 * MB, into) == MOO_OK);
    CHECK(begin(&importer, &bad, 1, 0, 4 * MB, into + 4 * MB) == MOO_OK);
    CHECK(end(&bad) == MOO_ESTALE);
    CHECK(end(&good) == MOO_OK);
    CHECK(!memcmp(into, memory, 4 * MB));
    /* beyond the end, and in the middle of many chunks */
    CHECK(fetch_here(4 * MB, 1) == MOO_ESTALE);
    CHECK(fetch_here(0, 8 * MB) == MOO_ESTALE);
    CHECK(fetch_here(0, 4 * MB) == MOO_OK);
    close_pair();
}

static struct mooi_tcp_statistics look(void)
{
    struct mooi_tcp_statistics now;

    mooi_tcp_statistics(importer.engine, &now);
    return now;
}

static void nothing_touches_memory_after_cancel(void)
{
    open_pair(NULL, 16 * MB);
    for (int i = 0; i < 16; i++) {
        struct wanted wanted;
        moo_err err;
        CHECK(begin(&importer, &wanted, 0, 0, 16 * MB, into) == MOO_OK);
        while (look().received % (16 * MB) < (uint64_t)(i % 8) * MB &&
               !count_of(&importer, &wanted.done))
            ;
        err = mooi_tcp_cancel(importer.link, &wanted);
        memset(into, 0, 16 * MB);
        CHECK(err == MOO_OK || end(&wanted) == MOO_OK);
        CHECK(fetch(&importer, 0, 1, 10, into + 8 * MB) == MOO_OK);
        memset(into, 0, 16 * MB);
        CHECK_SOON(!look().asked); /* what was asked for is thrown away */
        for (size_t k = 0; k < 16 * MB; k += 97)
            CHECK(!into[k]);
        CHECK(err != MOO_OK || !count_of(&importer, &wanted.done));
    }
    close_pair();
}

/* ---- links ---- */

static void control_messages_go_both_ways_in_order(void)
{
    uint8_t control[MOOI_TCP_CONTROL_BYTES];

    open_pair(NULL, 1);
    for (int i = 1; i <= 300; i++) {
        size_t length = 1 + (size_t)i * 7 % sizeof control;
        memset(control, i, sizeof control);
        CHECK(mooi_tcp_control(owner.link, control, length) == MOO_OK);
        CHECK(mooi_tcp_control(importer.link, control, length) == MOO_OK);
        await(&importer, &importer.controls, i);
        await(&owner, &owner.controls, i);
        CHECK(owner.control_bytes == length &&
              !memcmp(owner.control, control, length));
        CHECK(importer.control_bytes == length);
        CHECK(!memcmp(importer.control, control, length));
    }
    CHECK(mooi_tcp_control(owner.link, control, 0) == MOO_EINVAL);
    CHECK(mooi_tcp_control(owner.link, control, sizeof control + 1) ==
          MOO_EINVAL);
    close_pair();
}

static void a_drop_ends_fetches_and_then_the_link(void)
{
    struct wanted wanted;
    struct mooi_tcp_link *link;

    open_pair(NULL, 64 * MB);
    link = importer.link;
    mooi_tcp_hold(link);
    CHECK(begin(&importer, &wanted, 0, 0, 64 * MB, into) == MOO_OK);
    mooi_tcp_drop(importer.engine, 1, MOO_EPEER);
    CHECK(end(&wanted) == MOO_EPEER);
    await(&importer, &importer.downs, 1);
    await(&owner, &owner.downs, 1);
    CHECK(importer.why == MOO_EPEER && owner.why == MOO_EPEER);
    CHECK(mooi_tcp_control(link, (uint8_t *)"", 1) == MOO_EPEER);
    CHECK(mooi_tcp_cancel(link, &wanted) == MOO_ESTALE);
    mooi_tcp_rele(link);
    connect_sides(&owner, &importer); /* and a new one can be made */
    check_value(0, MB);
    connect_sides(&owner, &importer); /* or one that replaces the old */
    await(&importer, &importer.downs, 2);
    await(&owner, &owner.downs, 2);
    check_value(0, MB);
    close_pair();
}

/* ---- contacts that fail ---- */

static moo_err fail_to_connect(struct side *side, uint64_t peer,
                               const struct mooi_address *addresses,
                               size_t count)
{
    struct mooi_tcp_link *link;
    int before = side->downs;

    CHECK(mooi_tcp_connect(side->engine, peer, addresses, count, &link) ==
          MOO_OK);
    await(side, &side->downs, before + 1);
    return side->why;
}

/* A connection of ours to a side's listener. */
static int knock(struct side *side)
{
    struct mooi_address address;
    struct pollfd wait = {.events = POLLOUT};

    CHECK(mooi_tcp_addresses(side->engine, &address, 1) == 1);
    CHECK(mooi_socket_connect(&address, &wait.fd) == MOO_OK);
    CHECK(poll(&wait, 1, 5000) == 1);
    return wait.fd;
}

static int hung_up_on(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char byte[256];

    while (poll(&wait, 1, MOOI_CONNECT_MS + 5000) == 1)
        if (recv(fd, byte, sizeof byte, 0) <= 0)
            return 1;
    return 0;
}

static void a_flood_of_strangers_keeps_nobody_out(void)
{
    enum { COUNT = 300 };
    static int fd[COUNT];
    struct mooi_tcp_statistics now;

    open_side(&owner, 1, NULL);
    open_side(&importer, 2, NULL);
    for (int i = 0; i < COUNT; i++) {
        fd[i] = knock(&importer);
        if (i % 3 == 0)
            CHECK(send(fd[i], "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL) >= 0);
    }
    connect_sides(&owner, &importer);
    mooi_tcp_statistics(importer.engine, &now);
    CHECK(now.refused >= COUNT / 3 && now.links == 1);
    for (int i = 0; i < COUNT; i++)
        close(fd[i]);
    close_side(&owner);
    close_side(&importer);
}

/* ---- a peer that knows the key and misbehaves ---- */

static void finish_by_hand(struct mooi_handshake *handshake, int fd)
{
    moo_err err;

    while ((err = mooi_handshake_step(handshake, fd)) == MOO_ETIMEOUT) {
        struct pollfd wait = {fd, mooi_handshake_wants(handshake), 0};
        CHECK(poll(&wait, 1, 5000) == 1);
    }
    CHECK(err == MOO_OK);
}

static void hello_by_hand(int fd, uint16_t index, uint16_t count)
{
    struct mooi_hello hello = {.from = 1, .to = 2,
                               .purpose = MOOI_PURPOSE_DATA,
                               .index = index, .count = count, .token = 99};
    struct mooi_handshake handshake;

    CHECK(mooi_handshake_connect(&handshake, session_key, &hello) == MOO_OK);
    finish_by_hand(&handshake, fd);
}

/* Be the owner of a link to an engine that opens now. */
static void call_by_hand(int fd[2], const struct mooi_tcp_options *special)
{
    open_side(&importer, 2, special);
    for (uint16_t k = 0; k < 2; k++) {
        fd[k] = knock(&importer);
        hello_by_hand(fd[k], k, 2);
    }
    await(&importer, &importer.ups, 1);
}

static void a_malformed_message_ends_the_link(void)
{
    static const struct mooi_tcp_message wrong[] = {
        {.kind = MOOI_TCP_DATA, .tag = 0, .length = 5}, /* never asked for */
        {.kind = MOOI_TCP_REFUSE, .tag = 9, .error = MOO_ESTALE},
        {.kind = MOOI_TCP_ASK, .length = 5}, /* not the owner's to say */
        {.kind = MOOI_TCP_CONTROL, .length = 5}, /* where bulk goes */
        {.kind = MOOI_TCP_RELEASE}};

    for (size_t i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
        uint8_t head[MOOI_TCP_HEAD_BYTES] = "garbage, and more of it";
        int fd[2];
        call_by_hand(fd, NULL);
        if (i < sizeof wrong / sizeof *wrong)
            mooi_tcp_message_pack(&wrong[i], head);
        CHECK(send(fd[i % 2], head, sizeof head, MSG_NOSIGNAL) ==
              sizeof head);
        await(&importer, &importer.downs, 1);
        CHECK(importer.why == MOO_EPROTO);
        CHECK(hung_up_on(fd[0]) && hung_up_on(fd[1]));
        close(fd[0]);
        close(fd[1]);
        close_side(&importer);
    }
}

/* Play the owner by hand, and answer what is asked with these bytes. */
static void answer_by_hand(int fd, struct mooi_tcp_message answer,
                           const char *data)
{
    uint8_t head[MOOI_TCP_HEAD_BYTES];
    struct mooi_tcp_message ask;
    struct pollfd wait = {fd, POLLIN, 0};

    do { /* there may be pings before it */
        CHECK(poll(&wait, 1, 5000) == 1);
        CHECK(recv(fd, head, sizeof head, MSG_WAITALL) == sizeof head);
        CHECK(mooi_tcp_message_parse(head, &ask) == MOO_OK);
    } while (ask.kind == MOOI_TCP_PING);
    CHECK(ask.kind == MOOI_TCP_ASK && ask.flags == MOOI_TCP_SUMMED);
    answer.tag = ask.tag;
    mooi_tcp_message_pack(&answer, head);
    CHECK(send(fd, head, sizeof head, MSG_NOSIGNAL) == sizeof head);
    CHECK(send(fd, data, answer.length, MSG_NOSIGNAL) == answer.length);
}

static void wrong_bytes_end_the_link(void)
{
    static const struct mooi_tcp_message answers[] = {
        {.kind = MOOI_TCP_DATA, .length = 9, .flags = 1,
         .checksum = 0xe3069283}, /* that of "123456789" */
        {.kind = MOOI_TCP_DATA, .length = 9, .flags = 1, .checksum = 1},
        {.kind = MOOI_TCP_DATA, .length = 9}, /* without any */
        {.kind = MOOI_TCP_DATA, .length = 8, .flags = 1}};
    struct mooi_tcp_options options = with(1, 1);

    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct wanted wanted;
        char into[9];
        int fd[2];
        call_by_hand(fd, &options);
        CHECK(begin(&importer, &wanted, 0, 0, 9, into) == MOO_OK);
        answer_by_hand(fd[0], answers[i], "123456789");
        CHECK(end(&wanted) == (i ? MOO_EPROTO : MOO_OK));
        CHECK(i || !memcmp(into, "123456789", 9));
        close(fd[0]);
        close(fd[1]);
        await(&importer, &importer.downs, 1);
        close_side(&importer);
    }
}

/* The rest follows, one for each answer. */
static void an_owner_is_asked_for_no_more_at_a_time_than_it_has_room_for(void)
{
    enum { COUNT = MOOI_TCP_DEPTH + 8 };
    struct mooi_tcp_options options = with(1, 1);
    struct mooi_tcp_message answer = {.kind = MOOI_TCP_DATA, .length = 1,
                                      .flags = MOOI_TCP_SUMMED};
    struct wanted wanted[COUNT];
    char came[COUNT];
    int fd[2];

    call_by_hand(fd, &options);
    for (int i = 0; i < COUNT; i++)
        CHECK(begin(&importer, &wanted[i], 0, 0, 1, came + i) == MOO_OK);
    for (char i = 0; i < COUNT; i++) {
        answer.checksum = mooi_crc32c(0, &i, 1);
        answer_by_hand(fd[0], answer, &i);
        CHECK(end(&wanted[(int)i]) == MOO_OK && came[(int)i] == i);
    }
    close(fd[0]);
    close(fd[1]);
    await(&importer, &importer.downs, 1);
    close_side(&importer);
}

static void checksums_are_the_same_by_table_and_by_instruction(void)
{
    static char bytes[5000];

    fill(bytes, sizeof bytes);
    CHECK(mooi_crc32c(0, "123456789", 9) == 0xe3069283);
    for (size_t length = 0; length < 5000; length += 1 + length / 7)
        for (size_t from = 0; from < 9 && from + length < 5000; from++)
            CHECK(mooi_crc32c(7, bytes + from, length) ==
                  mooi_crc32c_by_table(7, bytes + from, length));
}

/* All after the deadline of a contact: who accepts, by its queue, and says
 * nothing; who connects and says nothing; and half a link. */
static void a_contact_that_does_not_end_is_given_up_with_a_reason(void)
{
    struct mooi_address address[2];
    int listener, silent, half;

    open_side(&owner, 1, NULL);
    open_side(&importer, 2, NULL);
    silent = knock(&importer);
    half = knock(&importer);
    hello_by_hand(half, 1, 3);
    CHECK(mooi_socket_listen(NULL, &listener) == MOO_OK);
    CHECK(mooi_socket_addresses(listener, address, 1) == 1);
    address[1] = address[0];
    CHECK(fail_to_connect(&owner, 2, address, 2) == MOO_ETIMEOUT);
    CHECK(strstr(owner.reason, "127.0.0.1:"));
    close(listener);
    CHECK(fail_to_connect(&owner, 2, address, 1) == MOO_EPEER);
    CHECK(strstr(owner.reason, "refused"));
    CHECK(hung_up_on(silent) && hung_up_on(half));
    CHECK(!count_of(&importer, &importer.ups) &&
          !count_of(&importer, &importer.downs));
    close(silent);
    close(half);
    close_side(&owner);
    close_side(&importer);
}

/* ---- forks ---- */

static void a_forked_child_does_not_keep_connections_open(void)
{
    int hold[2], status;
    char byte;
    pid_t child;

    CHECK(!pipe(hold));
    open_pair(NULL, 1);
    mooi_tcp_before_fork(owner.engine);
    child = fork();
    if (!child) {
        mooi_tcp_disown(owner.engine);
        close(hold[1]);
        _exit(read(hold[0], &byte, 1) != 0);
    }
    mooi_tcp_after_fork(owner.engine);
    close(hold[0]);
    close_side(&owner);
    /* the importer's descriptors live on in the child, the owner's do not */
    await(&importer, &importer.downs, 1);
    close(hold[1]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(!WEXITSTATUS(status));
    close_side(&importer);
    free(memory);
    free(into);
}

static int open_files(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

int main(void)
{
    int before = open_files();

    threads = 2;
    RUN(values_arrive_over_any_number_of_stripes_with_checksums);
    RUN(bulk_is_moved_by_so_many_threads);
    RUN(a_small_fetch_does_not_wait_for_a_large_one);
    RUN(a_refused_lease_fails_its_fetch_only);
    RUN(nothing_touches_memory_after_cancel);
    RUN(control_messages_go_both_ways_in_order);
    RUN(a_drop_ends_fetches_and_then_the_link);
    RUN(a_flood_of_strangers_keeps_nobody_out);
    RUN(a_malformed_message_ends_the_link);
    RUN(wrong_bytes_end_the_link);
    RUN(an_owner_is_asked_for_no_more_at_a_time_than_it_has_room_for);
    RUN(checksums_are_the_same_by_table_and_by_instruction);
    RUN(a_contact_that_does_not_end_is_given_up_with_a_reason);
    RUN(a_forked_child_does_not_keep_connections_open);
    CHECK(open_files() == before);
    return 0;
}
