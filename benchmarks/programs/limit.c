/* limit: the limit server, the fastest that a NameServer with one thread could be.
 *
 *     limit BODY_BYTES
 *
 * The server responds to every request frame at once, with a body of BODY_BYTES. It looks up, checks and encodes nothing:
 * its work is that of the kernel, splitting frames and copying responses. It listens on a free port of 127.0.0.1, prints
 * the log entry of a NameServer that listens, and exits after LIFETIME_SECONDS. Clients have to read their responses,
 * because a full socket blocks the server.
 */
#define _GNU_SOURCE /* memmem, accept4 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    EVENTS = 256,
    PREFIX = 8, /* length, serialize type and header size */
    HEADER_ROOM = 128,
    BUFFER = 256 * 1024,
    STAGE = 1 << 20, /* responses to one read are collected and sent together, up to this size */
    TYPE_NATIVE = 77,
    LIFETIME_SECONDS = 900, /* longer than any measurement, in case the benchmark was killed */
};

typedef struct {
    int fd;
    size_t held; /* bytes of incomplete frames */
    uint8_t bytes[BUFFER];
} Client;

static uint8_t *stage;
static size_t staged, body_size;

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void write_u32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void check(int is_true, const char *what) {
    if (is_true) return;
    fprintf(stderr, "limit: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Writes the header of a response in the format of the request: a JSON object, or [0, opaque, 1, 479, nil, nil]. */
static size_t write_header(uint8_t *at, const uint8_t *request, size_t size, int is_native) {
    const uint8_t *opaque = memmem(request, size, is_native ? "\xce" : "\"opaque\":", is_native ? 1 : 9);
    check(opaque != NULL, "a request without an opaque");
    if (!is_native) {
        static const char format[] = "{\"code\":0,\"flag\":1,\"language\":\"PYTHON\",\"opaque\":%d,\"version\":479}";
        return (size_t)snprintf((char *)at, HEADER_ROOM, format, atoi((const char *)opaque + 9));
    }
    memcpy(at, "\x96\x00\xce", 3);
    memcpy(at + 3, opaque + 1, 4);
    memcpy(at + 7, "\x01\xcd\x01\xdf\xc0\xc0", 6);
    return 13;
}

static void send_stage(const Client *client) {
    for (size_t sent = 0; sent < staged;) {
        ssize_t took = send(client->fd, stage + sent, staged - sent, MSG_NOSIGNAL);
        if (took < 0) break; /* the connection has ended, which the next read will notice */
        sent += (size_t)took;
    }
    staged = 0;
}

static void respond(const Client *client, const uint8_t *frame) {
    if (staged + PREFIX + HEADER_ROOM + body_size > STAGE) send_stage(client);
    uint32_t word = read_u32(frame + 4);
    uint8_t *at = stage + staged;
    size_t header = write_header(at + PREFIX, frame + PREFIX, word & 0xffffff, word >> 24 == TYPE_NATIVE);
    write_u32(at, (uint32_t)(4 + header + body_size));
    write_u32(at + 4, (word & 0xff000000) | (uint32_t)header);
    memset(at + PREFIX + header, 'b', body_size);
    staged += PREFIX + header + body_size;
}

static void serve(Client *client) {
    ssize_t got = recv(client->fd, client->bytes + client->held, BUFFER - client->held, 0);
    if (got <= 0) {
        close(client->fd);
        free(client);
        return;
    }
    client->held += (size_t)got;
    size_t used = 0;
    while (client->held - used >= PREFIX && client->held - used >= 4 + (size_t)read_u32(client->bytes + used)) {
        respond(client, client->bytes + used);
        used += 4 + read_u32(client->bytes + used);
    }
    client->held -= used;
    memmove(client->bytes, client->bytes + used, client->held);
    send_stage(client);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN}, ready[EVENTS];
    socklen_t size = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), epoll = epoll_create1(EPOLL_CLOEXEC);
    if (argc != 2) return fputs("usage: limit BODY_BYTES\n", stderr), 2;
    body_size = (size_t)atol(argv[1]);
    stage = malloc(STAGE + body_size);
    check(stage != NULL, "memory");
    alarm(LIFETIME_SECONDS);
    check(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 4096) &&
              !getsockname(listener, (struct sockaddr *)&address, &size) &&
              !epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event),
          "cannot listen");
    printf("{\"event\":\"listening\",\"addresses\":[\"127.0.0.1:%d\"]}\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(epoll, ready, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (ready[i].data.ptr) {
                serve(ready[i].data.ptr);
                continue;
            }
            Client *client = calloc(1, sizeof *client);
            check(client != NULL, "memory");
            client->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            check(client->fd >= 0, "cannot accept");
            setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            event.data.ptr = client;
            check(!epoll_ctl(epoll, EPOLL_CTL_ADD, client->fd, &event), "epoll_ctl");
        }
    }
}
