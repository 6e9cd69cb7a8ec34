/* load: how many requests does a server answer in a second, and how late? Or: how soon do all watchers know of a change?
 *
 * Closed loop: each connection keeps a fixed number of requests in flight and sends the next one when a response is
 * complete. With --rate connections send in turn, each when its time has come, however late the responses are; one that
 * still waits is late itself, and its next latency counts from when the request was due.
 * A RocketMQ request never changes but for its opaque, which is written over a copy of it; responses may come in any
 * order, and each is matched to its request by its opaque. Of other protocols only the ends of frames are known, and
 * responses come in order.
 * One thread: pin it to a core of its own.
 */
#define _GNU_SOURCE /* memmem */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------------------- the machine */

enum {
    TYPE_JSON = 0,
    TYPE_NATIVE = 77,
    PREFIX = 8,                /* length, type and header size */
    HEADER_LIMIT = 8192,       /* no header of a benchmark comes near it */
    READ_AT_ONCE = 256 * 1024, /* a read that fills this is rare at any depth */
};

__attribute__((noreturn, format(printf, 2, 3))) static void quit(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(status);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Raises the limit of open descriptors as far as it goes; ends when so many connections are not allowed. */
static void allow_connections(long count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) quit(1, "getrlimit: %s", strerror(errno));
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit)) quit(1, "setrlimit: %s", strerror(errno));
    if (limit.rlim_cur < (unsigned long long)count + 16)
        quit(1, "%ld connections: %llu descriptors allowed (ulimit -Hn)", count, (unsigned long long)limit.rlim_cur);
}

static struct sockaddr_in loopback(long port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int tcp_socket(int flags) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0) quit(1, "socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* A connection that does not block from now on; ends when it is not accepted in so many seconds. */
static int connected(long port, long seconds) {
    struct sockaddr_in to = loopback(port);
    struct timeval patience = {.tv_sec = seconds};
    int fd = tcp_socket(0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, sizeof to))
        quit(1, "cannot connect to 127.0.0.1:%ld: %s", port,
             errno == EINPROGRESS ? "not accepted in time" : strerror(errno));
    if (fcntl(fd, F_SETFL, O_NONBLOCK)) quit(1, "fcntl: %s", strerror(errno));
    return fd;
}

static void *allocated(void *memory) {
    if (!memory) quit(1, "out of memory");
    return memory;
}

static void watch(int epoll, int operation, int fd, void *whose, uint32_t events) {
    struct epoll_event wanted = {.events = events, .data.ptr = whose};
    if (epoll_ctl(epoll, operation, fd, &wanted)) quit(1, "epoll_ctl: %s", strerror(errno));
}

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void write_u32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* ---------------------------------------------------------------------------------------------- what a header says */

typedef struct {
    uint8_t type;
    int64_t code;
    int64_t opaque;
} Head;

/* The integer after `member` (with its quotes and colon); false when it is missing. A quote inside of a JSON string has
 * a backslash before it, so a remark cannot be taken for a member. */
static bool json_integer(const uint8_t *header, size_t size, const char *member, int64_t *value) {
    const size_t member_size = strlen(member);
    const uint8_t *at = memmem(header, size, member, member_size), *end = header + size;
    if (!at) return false;
    at += member_size;
    bool negative = at < end && *at == '-';
    at += negative;
    const uint8_t *digits = at;
    int64_t sum = 0;
    while (at < end && *at >= '0' && *at <= '9' && at - digits < 18) sum = sum * 10 + (*at++ - '0');
    *value = negative ? -sum : sum;
    return at > digits;
}

/* One msgpack integer of at most 32 bits; the position behind it, or NULL. */
static const uint8_t *msgpack_integer(const uint8_t *at, const uint8_t *end, int64_t *value) {
    if (at >= end) return NULL;
    uint8_t mark = *at++;
    if (mark <= 0x7f || mark >= 0xe0) return *value = (int8_t)mark, at;
    bool is_unsigned = mark >= 0xcc && mark <= 0xce;
    if (!is_unsigned && (mark < 0xd0 || mark > 0xd2)) return NULL;
    int width = 1 << (mark - (is_unsigned ? 0xcc : 0xd0));
    if (end - at < width) return NULL;
    uint32_t bits = 0;
    for (int i = 0; i < width; i++) bits = bits << 8 | at[i];
    *value = is_unsigned ? (int64_t)bits : width == 1 ? (int8_t)bits : width == 2 ? (int16_t)bits : (int32_t)bits;
    return at + width;
}

/* NULL, or what is wrong with the header. */
static const char *read_header(const uint8_t *header, size_t size, Head *head) {
    if (head->type == TYPE_JSON) {
        if (!json_integer(header, size, "\"code\":", &head->code)) return "header without a code";
        if (!json_integer(header, size, "\"opaque\":", &head->opaque)) return "header without an opaque";
        return NULL;
    }
    if (head->type != TYPE_NATIVE) return "serialize type neither 0 nor 77";
    const uint8_t *end = header + size, *at = header + 1;
    if (!size || header[0] != 0x96) return "native header is not an array of 6";
    if (!(at = msgpack_integer(at, end, &head->code))) return "native header without a code";
    if (!msgpack_integer(at, end, &head->opaque)) return "native header without an opaque";
    return NULL;
}

/* ------------------------------------------------------------------------------------------------- bytes coming in */

/* Where one connection's input stands: in a body, or in the held first bytes of a frame. */
typedef struct {
    Head head;           /* of the frame whose body is coming */
    uint32_t body_left;  /* bytes of that body still to come */
    uint32_t held;       /* bytes in `start` */
    uint8_t start[PREFIX + HEADER_LIMIT]; /* the beginning of a frame whose header is not complete */
} Inflow;

typedef void OnFrame(void *whose, const Head *head);

/* Reads once, and calls on_frame for each frame whose last byte has arrived.
 * NULL, or why nothing more can come from this peer. */
static const char *receive(int fd, Inflow *in, uint64_t *bytes, OnFrame *on_frame, void *whose) {
    static uint8_t buffer[PREFIX + HEADER_LIMIT + READ_AT_ONCE];
    memcpy(buffer, in->start, in->held);
    ssize_t got = recv(fd, buffer + in->held, sizeof buffer - in->held, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
    if (got == 0) return "closed by the peer";
    *bytes += (uint64_t)got;
    const uint8_t *at = buffer, *end = buffer + in->held + got;
    in->held = 0;
    if (in->body_left) {
        if ((size_t)(end - at) < in->body_left) return in->body_left -= (uint32_t)got, NULL;
        at += in->body_left;
        in->body_left = 0;
        on_frame(whose, &in->head);
    }
    while (end - at >= PREFIX) {
        uint32_t length = read_u32(at), header_size = read_u32(at + 4) & 0xffffff;
        if (length < 4 || header_size > length - 4) return "frame shorter than its header";
        if (header_size > HEADER_LIMIT) return "header of more than 8192 bytes";
        if ((size_t)(end - at) < PREFIX + header_size) break;
        in->head.type = at[4];
        const char *wrong = read_header(at + PREFIX, header_size, &in->head);
        if (wrong) return wrong;
        at += PREFIX + header_size;
        uint32_t body = length - 4 - header_size;
        if ((size_t)(end - at) < body) return in->body_left = body - (uint32_t)(end - at), NULL;
        at += body;
        on_frame(whose, &in->head);
    }
    in->held = (uint32_t)(end - at);
    memcpy(in->start, at, in->held);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------- bytes going out */

/* What the socket would not take yet: bytes[sent] to bytes[size]; empty when sent == size. */
typedef struct {
    uint8_t *bytes;
    size_t sent, size, room;
} Outflow;

static bool is_waiting(const Outflow *out) { return out->sent < out->size; }

/* How many bytes the socket took; exactly 0 when it is full, -1 when it is broken. */
static ssize_t offer(int fd, const uint8_t *bytes, size_t size) {
    ssize_t took = send(fd, bytes, size, MSG_NOSIGNAL);
    return took < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : took;
}

/* Sends, behind what is waiting already; what does not go out now waits. NULL, or why the socket is broken. */
static const char *send_or_keep(int fd, Outflow *out, const uint8_t *bytes, size_t size) {
    ssize_t took = is_waiting(out) ? 0 : offer(fd, bytes, size);
    if (took < 0) return strerror(errno);
    size_t left = size - (size_t)took;
    if (!left) return NULL;
    if (!is_waiting(out)) out->sent = out->size = 0;
    if (out->size + left > out->room) {
        out->room = 2 * (out->size + left);
        out->bytes = allocated(realloc(out->bytes, out->room));
    }
    memcpy(out->bytes + out->size, bytes + took, left);
    out->size += left;
    return NULL;
}

/* Sends of what waits as much as the socket takes. NULL, or why the socket is broken. */
static const char *send_kept(int fd, Outflow *out) {
    ssize_t took = offer(fd, out->bytes + out->sent, out->size - out->sent);
    if (took < 0) return strerror(errno);
    out->sent += (size_t)took;
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------ latencies */

/* Buckets of 1 ns up to 256 ns, then 128 to each doubling: none is wider than 0.8 % of what is in it. */
enum { BUCKETS = 7424 };

typedef struct {
    uint64_t count, largest_ns;
    uint64_t buckets[BUCKETS];
} Latencies;

static size_t bucket_of(uint64_t ns) {
    if (ns < 256) return ns;
    int shift = 56 - __builtin_clzll(ns);
    return ((size_t)shift << 7) + (ns >> shift);
}

static uint64_t largest_in(size_t bucket) {
    if (bucket < 256) return bucket;
    int shift = (int)(bucket >> 7) - 1;
    return ((bucket - ((size_t)shift << 7) + 1) << shift) - 1;
}

static void add_latency(Latencies *all, uint64_t ns) {
    all->count++;
    all->buckets[bucket_of(ns)]++;
    if (ns > all->largest_ns) all->largest_ns = ns;
}

/* The upper edge of the bucket, in microseconds: a figure that no rounding makes better. */
static double percentile_us(const Latencies *all, double share) {
    uint64_t seen = 0, enough = (uint64_t)((double)all->count * share);
    size_t bucket = 0;
    while (bucket < BUCKETS - 1 && (seen += all->buckets[bucket]) <= enough && seen < all->count) bucket++;
    uint64_t ns = largest_in(bucket);
    return (double)(ns < all->largest_ns ? ns : all->largest_ns) / 1e3;
}

/* ------------------------------------------------------------------------------------------------------------- load */


enum {
    EVENTS = 256,
    DEPTH_LIMIT = 1024,
    FRAME_LIMIT = 1 << 18,
    CONNECT_SECONDS = 5, /* a listener that is full for longer than this is a failure */
    GRACE_SECONDS = 60,  /* for connecting and watching, above the time of the measurement */
    SETTLE_MS = 300,     /* for requests to arrive whose responses wait for a change */
    FIRST_OPAQUE = 1000000000,
    OPAQUE_DIGITS = 10,
    /* of HTTP/2 */
    DATA = 0,
    HEADERS = 1,
    RST_STREAM = 3,
    SETTINGS = 4,
    PING = 6,
    GOAWAY = 7,
    END_STREAM = 1,
    ACK = 1,
    H2_PREFIX = 9,
    PREFACE = 24,
};

/* Sends requests to 127.0.0.1:PORT and prints one line of JSON: responses a second, latency percentiles in microseconds,
 * failed responses (such as RocketMQ's with another code than 0), and the age of the oldest request without a response.
 * Items come on standard input, each behind its length (u32, big-endian): the greeting of each connection, the change
 * that watchers wait for, the farewell of each connection, then the requests, which are sent in turn.
 */
enum framing { ROCKETMQ, LENGTH, HTTP2 };

typedef struct {
    const uint8_t *bytes;
    size_t size, opaque_at;
} Item;

/* One connection. Slot s of its `depth` sends the opaque FIRST_OPAQUE + s + k * depth in its k-th request. */
typedef struct {
    int fd;
    Inflow in;
    Outflow out;
    uint32_t *opaques; /* in flight in each slot */
    uint64_t *sent_ns; /* and since when; 0: nothing is */
    /* of other framings */
    uint8_t *held; /* the beginning of a frame */
    size_t held_size, data; /* bytes that came on the stream */
    uint32_t stream;        /* of HTTP/2, the last one opened */
    long acks_left;
    bool has_asked_again, knows;
} Peer;

static struct {
    enum framing framing;
    long port;
    long connections;
    long depth;   /* rocketmq: requests in flight on each connection */
    long seconds; /* of the measurement */
    long warmup;  /* seconds in which requests are sent before that */
    long rate;    /* rocketmq: requests a second from all connections, one in flight on each; 0: as many as are answered */
    long acks;    /* frames that come on each connection before it counts */
    long least;   /* length, http2: a response of fewer bytes is a failure */
    bool own;     /* each connection sends the request of its number again and again */
    bool watch;   /* length, http2: send each connection's first request, then the change, until all have a response */
} wanted = {.connections = 200, .depth = 1, .seconds = 3};

/* What is counted while measuring. */
static struct {
    uint64_t bytes, failed;
    Latencies latencies;
} tally;

static Item greeting, change, farewell, *requests;
static long request_count;
static uint32_t greeting_stream; /* of HTTP/2, that the greeting opens */
static Peer *peers, changer;
static int epoll;
static bool is_repeating = true; /* the next request after each response */
static bool is_unary;
static long sent_count, ready_count, knowing_count;
static uint64_t changed_ns;

/* The requests of the current step, sent with one call. */
static uint8_t *stage;
static size_t staged;
static long staged_slots[DEPTH_LIMIT], staged_count;
static uint64_t read_at_ns;

/* ---------------------------------------------------------------------------------------------------- what is sent */

/* Where the opaque of a RocketMQ request is. */
static size_t opaque_of(const Item *item) {
    const char *mark = item->bytes[4] == TYPE_JSON ? "\"opaque\":1000000000" : "\xce\x3b\x9a\xca";
    size_t size = item->bytes[4] == TYPE_JSON ? 19 : 5; /* the last byte of FIRST_OPAQUE is 0 */
    const uint8_t *at = memmem(item->bytes, item->size, mark, size);
    if (!at) quit(2, "a request without the opaque %d", FIRST_OPAQUE);
    return (size_t)(at - item->bytes) + (item->bytes[4] == TYPE_JSON ? 9 : 1);
}

static Item read_item(void) {
    uint8_t prefix[4];
    if (fread(prefix, 1, sizeof prefix, stdin) != sizeof prefix) return (Item){0};
    size_t size = read_u32(prefix);
    uint8_t *bytes = allocated(malloc(size + 1));
    if (fread(bytes, 1, size, stdin) != size) quit(2, "standard input ends within an item");
    return (Item){bytes, size, 0};
}

static void read_items(void) {
    long room = 0;
    size_t largest = 0;
    greeting = read_item(), change = read_item(), farewell = read_item();
    for (Item item; (item = read_item()).bytes;) {
        if (wanted.framing == ROCKETMQ) item.opaque_at = opaque_of(&item);
        if (item.size > largest) largest = item.size;
        if (request_count == room) requests = allocated(realloc(requests, (size_t)(room = 2 * room + 16) * sizeof item));
        requests[request_count++] = item;
    }
    if (!request_count) quit(2, "no request on standard input");
    if (change.size > largest) largest = change.size;
    stage = allocated(malloc((size_t)wanted.depth * largest));
}

/* Writes the next request, or the one of the connection, onto the stage. */
static void put_request(Peer *peer, long slot) {
    const Item *item = &requests[(wanted.own ? peer - peers : sent_count) % request_count];
    uint8_t *at = stage + staged + item->opaque_at;
    uint32_t opaque = peer->opaques[slot];
    memcpy(stage + staged, item->bytes, item->size);
    if (item->bytes[4] != TYPE_JSON) write_u32(at, opaque);
    else
        for (int digit = OPAQUE_DIGITS; digit--; opaque /= 10) at[digit] = (uint8_t)('0' + opaque % 10);
    staged += item->size;
    sent_count++;
    staged_slots[staged_count++] = slot;
}

static void send_stage(Peer *peer) {
    bool was_waiting = is_waiting(&peer->out);
    uint64_t now = now_ns();
    for (long i = 0; i < staged_count; i++) peer->sent_ns[staged_slots[i]] = now;
    const char *wrong = staged ? send_or_keep(peer->fd, &peer->out, stage, staged) : NULL;
    if (wrong) quit(1, "cannot send: %s", wrong);
    staged = 0, staged_count = 0;
    if (is_waiting(&peer->out) && !was_waiting) watch(epoll, EPOLL_CTL_MOD, peer->fd, peer, EPOLLIN | EPOLLOUT);
}

static void put_out(Peer *peer, const uint8_t *bytes, size_t size) {
    const char *wrong = size ? send_or_keep(peer->fd, &peer->out, bytes, size) : NULL;
    if (!wrong && is_waiting(&peer->out)) wrong = "the socket is full";
    if (wrong) quit(1, "cannot send: %s", wrong);
}

/* Sends an item of another framing. A request of HTTP/2 that begins with HEADERS opens the connection's next stream. */
static void send_item(Peer *peer, const Item *item) {
    memcpy(stage, item->bytes, item->size);
    if (wanted.framing == HTTP2 && item->size > H2_PREFIX && stage[3] == HEADERS) {
        peer->stream += peer->stream ? 2 : 1;
        for (size_t at = 0; at < item->size; at += H2_PREFIX + (read_u32(stage + at) >> 8))
            write_u32(stage + at + 5, peer->stream);
    }
    peer->data = 0;
    peer->sent_ns[0] = now_ns();
    put_out(peer, stage, item->size);
}

static void send_next(Peer *peer) { send_item(peer, &requests[sent_count++ % request_count]); }

/* ------------------------------------------------------------------------------------------------- RocketMQ comes in */

static void rocketmq_answered(void *whose, const Head *head) {
    Peer *peer = whose;
    long slot = (long)((head->opaque - FIRST_OPAQUE) % wanted.depth);
    if (slot < 0 || !peer->sent_ns[slot] || head->opaque != peer->opaques[slot])
        quit(1, "response to opaque %lld, which is not in flight", (long long)head->opaque);
    if (!read_at_ns) read_at_ns = now_ns();
    add_latency(&tally.latencies, read_at_ns - peer->sent_ns[slot]);
    tally.failed += head->code != 0;
    peer->sent_ns[slot] = 0;
    peer->opaques[slot] += (uint32_t)wanted.depth;
    if (is_repeating) put_request(peer, slot);
}

/* ---------------------------------------------------------------------------------------------- other frames come in */

static void was_notified(Peer *peer, size_t size) {
    if (request_count > 1 && !peer->has_asked_again) {
        /* the notification does not say what is new */
        peer->has_asked_again = true;
        send_item(peer, &requests[1]);
        return;
    }
    if (peer->knows) return;
    tally.failed += size < (size_t)wanted.least;
    peer->knows = true;
    knowing_count++;
    add_latency(&tally.latencies, now_ns() - changed_ns);
}

/* A response of `size` bytes is complete. */
static void answered(Peer *peer, size_t size) {
    if (peer == &changer) return;
    if (peer->acks_left) {
        if (--peer->acks_left) return;
        ready_count++;
        if (!wanted.watch) send_next(peer);
    } else if (wanted.watch) {
        was_notified(peer, size);
    } else {
        tally.failed += size < (size_t)wanted.least;
        add_latency(&tally.latencies, now_ns() - peer->sent_ns[0]);
        send_next(peer);
    }
}

/* The one response to a request that ends its stream ends it, too; on others each DATA frame is a response. */
static void take_http2(Peer *peer, uint8_t *frame, size_t size) {
    uint8_t type = frame[3], flags = frame[4];
    if (type == RST_STREAM || type == GOAWAY) quit(1, "HTTP/2 frame of type %d: refused", type);
    if ((type == SETTINGS || type == PING) && !(flags & ACK)) {
        if (type == SETTINGS) memset(frame, 0, 3), size = H2_PREFIX;
        frame[4] = ACK;
        put_out(peer, frame, size);
    } else if (type == DATA) {
        peer->data += size - H2_PREFIX;
        if (!is_unary) answered(peer, peer->data), peer->data = 0;
    } else if (type == HEADERS && flags & END_STREAM) {
        if (!peer->data && peer != &changer) quit(1, "a response without data: a gRPC error");
        if (is_unary) answered(peer, peer->data);
    }
}

/* NULL, or why nothing more can come from this peer. */
static const char *receive_others(Peer *peer) {
    static uint8_t buffer[FRAME_LIMIT + READ_AT_ONCE];
    if (peer->held_size) memcpy(buffer, peer->held, peer->held_size);
    ssize_t got = recv(peer->fd, buffer + peer->held_size, READ_AT_ONCE, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
    if (got == 0) return "closed by the peer";
    uint8_t *at = buffer, *end = buffer + peer->held_size + got;
    bool is_http2 = wanted.framing == HTTP2;
    while (end - at >= (is_http2 ? H2_PREFIX : 4)) {
        size_t size = is_http2 ? H2_PREFIX + (read_u32(at) >> 8) : 4 + (size_t)read_u32(at);
        if (size > FRAME_LIMIT) quit(1, "frame of %zu bytes, limit %d", size, FRAME_LIMIT);
        if ((size_t)(end - at) < size) break;
        if (is_http2) take_http2(peer, at, size);
        else answered(peer, size - 4);
        at += size;
    }
    peer->held_size = (size_t)(end - at);
    if (peer->held_size) {
        peer->held = allocated(realloc(peer->held, peer->held_size));
        memcpy(peer->held, at, peer->held_size);
    }
    return NULL;
}

/* -------------------------------------------------------------------------------------------------------- event loop */

static void step(Peer *peer, uint32_t events) {
    if (events & EPOLLOUT && is_waiting(&peer->out)) {
        const char *wrong = send_kept(peer->fd, &peer->out);
        if (wrong) quit(1, "cannot send: %s", wrong);
        if (!is_waiting(&peer->out)) watch(epoll, EPOLL_CTL_MOD, peer->fd, peer, EPOLLIN);
    }
    if (!(events & ~(uint32_t)EPOLLOUT)) return;
    read_at_ns = 0;
    const char *wrong = wanted.framing == ROCKETMQ
                            ? receive(peer->fd, &peer->in, &tally.bytes, rocketmq_answered, peer)
                            : receive_others(peer);
    if (wrong) quit(1, "one of %ld connections: %s", wanted.connections, wrong);
    if (staged_count) send_stage(peer);
}

static void wait_and_step(int timeout_ms) {
    struct epoll_event ready[EVENTS];
    int count = epoll_wait(epoll, ready, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) step(ready[i].data.ptr, ready[i].events);
}

/* Sends what is due, and returns when the next request is. */
static uint64_t send_due(uint64_t from, uint64_t now) {
    for (;;) {
        uint64_t due = from + (uint64_t)((double)sent_count * 1e9 / (double)wanted.rate);
        Peer *peer = &peers[sent_count % wanted.connections];
        if (due > now || peer->sent_ns[0]) return due;
        put_request(peer, 0);
        send_stage(peer);
        peer->sent_ns[0] = due;
    }
}

/* Goes on until then, and returns when that was; `began` is when the first request was due. */
static uint64_t go_on_until(uint64_t began, uint64_t until) {
    uint64_t now;
    while ((now = now_ns()) < until) {
        uint64_t next = wanted.rate ? send_due(began, now) : until;
        /* the last millisecond is not slept through: a request would be late */
        wait_and_step(next > now ? (int)((next - now) / 1000000) : 0);
    }
    return now;
}

static void connect_peer(Peer *peer) {
    /* the rest is zero already, and most of it is never touched */
    peer->fd = connected(wanted.port, CONNECT_SECONDS);
    peer->acks_left = wanted.acks;
    peer->stream = greeting_stream;
    peer->opaques = allocated(calloc((size_t)wanted.depth, sizeof *peer->opaques));
    peer->sent_ns = allocated(calloc((size_t)wanted.depth, sizeof *peer->sent_ns));
    for (long slot = 0; slot < wanted.depth; slot++) peer->opaques[slot] = (uint32_t)(FIRST_OPAQUE + slot);
    watch(epoll, EPOLL_CTL_ADD, peer->fd, peer, EPOLLIN);
    put_out(peer, greeting.bytes, greeting.size);
}

static void begin_others(void) {
    for (long i = 0; i < wanted.connections; i++) {
        if (wanted.watch) send_item(&peers[i], &requests[0]);
        else if (!wanted.acks) send_next(&peers[i]);
    }
    while (wanted.acks && ready_count < wanted.connections) wait_and_step(-1);
}

static void begin(void) {
    if (wanted.framing != ROCKETMQ || wanted.watch) {
        begin_others();
        return;
    }
    is_repeating = !wanted.rate;
    for (long i = 0; is_repeating && i < wanted.connections; i++) {
        for (long slot = 0; slot < wanted.depth; slot++) put_request(&peers[i], slot);
        send_stage(&peers[i]);
    }
}

/* ----------------------------------------------------------------------------------------------------------- results */

static double oldest_request_us(uint64_t now) {
    uint64_t oldest = now;
    for (long i = 0; i < wanted.connections; i++)
        for (long slot = 0; slot < wanted.depth; slot++)
            if (peers[i].sent_ns[slot] && peers[i].sent_ns[slot] < oldest) oldest = peers[i].sent_ns[slot];
    return (double)(now - oldest) / 1e3;
}

static void print_result(double took, double oldest_us) {
    const Latencies *latencies = &tally.latencies;
    if (!latencies->count) quit(1, "no response in %.1f s", took);
    printf("{\"responses\":%llu,\"responses_per_second\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,"
           "\"max_us\":%.1f,\"oldest_unanswered_us\":%.1f,\"failed\":%llu}\n",
           (unsigned long long)latencies->count, (double)latencies->count / took, percentile_us(latencies, .5),
           percentile_us(latencies, .99), percentile_us(latencies, .999), (double)latencies->largest_ns / 1e3,
           oldest_us, (unsigned long long)tally.failed);
}

static void measure_rate(void) {
    uint64_t began = now_ns();
    begin();
    go_on_until(began, began + (uint64_t)wanted.warmup * 1000000000u);
    memset(&tally, 0, sizeof tally);
    uint64_t from = now_ns();
    uint64_t now = go_on_until(began, from + (uint64_t)wanted.seconds * 1000000000u);
    print_result((double)(now - from) / 1e9, oldest_request_us(now));
}

static void measure_watches(void) {
    begin();
    connect_peer(&changer);
    uint64_t now = now_ns();
    go_on_until(now, now + SETTLE_MS * 1000000u);
    if (knowing_count) quit(1, "%ld were notified before anything changed", knowing_count);
    changed_ns = now_ns();
    send_item(&changer, &change);
    while (knowing_count < wanted.connections) wait_and_step(-1);
    print_result((double)(now_ns() - changed_ns) / 1e9, 0);
    put_out(&changer, farewell.bytes, farewell.size);
}

/* ----------------------------------------------------------------------------------------------------------- options */

static enum framing framing_named(const char *name) {
    static const char *const names[] = {"rocketmq", "length", "http2"};
    for (int framing = 0; framing < 3; framing++)
        if (!strcmp(name, names[framing])) return (enum framing)framing;
    quit(2, "--framing %s: not rocketmq, length or http2", name);
}

/* Whether the last frame of the first request ends its stream. */
static bool ends_its_stream(const Item *item) {
    uint8_t flags = 0;
    for (size_t at = 0; at + H2_PREFIX <= item->size; at += H2_PREFIX + (read_u32(item->bytes + at) >> 8))
        flags = item->bytes[at + 4];
    return flags & END_STREAM;
}

/* The stream of the greeting's last frame; 0 when it is about the connection. */
static uint32_t stream_of(const Item *item) {
    uint32_t stream = 0;
    for (size_t at = PREFACE; at + H2_PREFIX <= item->size; at += H2_PREFIX + (read_u32(item->bytes + at) >> 8))
        stream = read_u32(item->bytes + at + 5);
    return stream;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},    {"framing", required_argument, NULL, 'f'},
        {"connections", required_argument, NULL, 'c'}, {"depth", required_argument, NULL, 'd'},
        {"seconds", required_argument, NULL, 's'}, {"warmup", required_argument, NULL, 'w'},
        {"rate", required_argument, NULL, 'r'},    {"own", no_argument, NULL, 'o'},
        {"watch", no_argument, NULL, 'W'},         {"acks", required_argument, NULL, 'a'},
        {"least", required_argument, NULL, 'l'},           {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) switch (option) {
            case 'p': wanted.port = atol(optarg); break;
            case 'f': wanted.framing = framing_named(optarg); break;
            case 'c': wanted.connections = atol(optarg); break;
            case 'd': wanted.depth = atol(optarg); break;
            case 's': wanted.seconds = atol(optarg); break;
            case 'w': wanted.warmup = atol(optarg); break;
            case 'r': wanted.rate = atol(optarg); break;
            case 'o': wanted.own = true; break;
            case 'W': wanted.watch = true; break;
            case 'a': wanted.acks = atol(optarg); break;
            case 'l': wanted.least = atol(optarg); break;
            default: return 2;
        }
    alarm((unsigned)(GRACE_SECONDS + wanted.warmup + wanted.seconds));
    read_items();
    if (wanted.framing == HTTP2) {
        greeting_stream = stream_of(&greeting);
        is_unary = ends_its_stream(&requests[0]);
    }
    allow_connections(wanted.connections);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    peers = allocated(calloc((size_t)wanted.connections, sizeof *peers));
    for (long i = 0; i < wanted.connections; i++) connect_peer(&peers[i]);
    if (wanted.watch) measure_watches();
    else measure_rate();
    for (long i = 0; farewell.size && i < wanted.connections; i++) put_out(&peers[i], farewell.bytes, farewell.size);
    return 0;
}
