/* SPDX-License-Identifier: MIT */
/* remote_stub.c: stands in, until the engine has all its functions. */
#include "transport/tcp.h"
#define WEAK __attribute__((weak))
WEAK moo_err mooi_tcp_connect(struct mooi_tcp *engine, uint64_t peer,
                         const struct mooi_address *addresses, size_t count,
                         struct mooi_tcp_link **out)
{ (void)engine; (void)peer; (void)addresses; (void)count; (void)out; return MOO_EUNREACHABLE; }
WEAK moo_err mooi_tcp_fetch(struct mooi_tcp_link *link,
                       const struct mooi_lease_name *name, uint64_t offset,
                       uint64_t length, void *into, void *cookie)
{ (void)link; (void)name; (void)offset; (void)length; (void)into; (void)cookie; return MOO_EPEER; }
WEAK moo_err mooi_tcp_cancel(struct mooi_tcp_link *link, void *cookie)
{ (void)link; (void)cookie; return MOO_ESTALE; }
WEAK moo_err mooi_tcp_release(struct mooi_tcp_link *link, const struct mooi_lease_name *name)
{ (void)link; (void)name; return MOO_EPEER; }
WEAK moo_err mooi_tcp_note(struct mooi_tcp_link *link, const uint8_t *bytes, size_t length)
{ (void)link; (void)bytes; (void)length; return MOO_EPEER; }
WEAK void mooi_tcp_drop(struct mooi_tcp *engine, uint64_t peer) { (void)engine; (void)peer; }
WEAK void mooi_tcp_hold(struct mooi_tcp_link *link) { (void)link; }
WEAK void mooi_tcp_rele(struct mooi_tcp_link *link) { (void)link; }
WEAK void mooi_tcp_reason(struct mooi_tcp_link *link, char *text, size_t room) { (void)link; if (room) *text = 0; }
WEAK moo_err mooi_tcp_open(const struct mooi_tcp_options *options,
                      const struct mooi_tcp_events *events,
                      struct mooi_tcp **out)
{ (void)options; (void)events; (void)out; return MOO_EUNREACHABLE; }
WEAK size_t mooi_tcp_addresses(struct mooi_tcp *engine, struct mooi_address *out, size_t room)
{ (void)engine; (void)out; (void)room; return 0; }
WEAK void mooi_tcp_statistics(struct mooi_tcp *engine, struct mooi_tcp_statistics *out)
{ (void)engine; (void)out; }
WEAK void mooi_tcp_close(struct mooi_tcp *engine) { (void)engine; }
WEAK void mooi_tcp_before_fork(struct mooi_tcp *engine) { (void)engine; }
WEAK void mooi_tcp_after_fork(struct mooi_tcp *engine) { (void)engine; }
WEAK void mooi_tcp_disown(struct mooi_tcp *engine) { (void)engine; }
