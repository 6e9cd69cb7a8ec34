/* load: the load generator of the benchmarks. It sends ready-made requests to a server on 127.0.0.1 and prints one JSON
 * object, whose members `Load` of benchmarks/harness/loads.py explains.
 *
 * By default each of --connections keeps --depth requests in flight and sends the next one when a response has come.
 * With --rate the connections take turns with so many requests a second, each sent when it is due, however late earlier
 * responses are; the latency of a request counts from when it was due.
 * With --watch each connection sends one request whose response the server holds back; then one more connection changes
 * something, and the latencies are those until each watcher has been notified. If there is a request to be sent beside the
 * notifications, one connection meanwhile sends it BESIDE_RATE times a second, and the latencies of its responses are
 * printed as well.
 *
 * Standard input has the bytes to send, each item behind its length (u32, big-endian): a greeting that begins each
 * connection, the change that watchers wait for, a farewell that ends each connection, a request that is sent beside the
 * notifications, then the requests, which the connections send in turn.
 *
 * Responses of a connection are taken to come in the order of its requests. A server that responds in another order gets
 * the same mean latency, and higher percentiles that are slightly too good.
 * The program has one thread: pin it to a core of its own.
 */
#define _GNU_SOURCE /* memmem */

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS = 256,
    FRAME_LIMIT = 1 << 18,
    READ_AT_ONCE = 256 * 1024,
    CONNECT_SECONDS = 5, /* a listener that is full for longer than this is a failure */
    FIRST_ADDRESS = 0x7f010001, /* 127.1.0.1 */
    GRACE_SECONDS = 60,  /* for connecting and watching, in addition to the time of the measurement */
    SETTLE_MS = 300,     /* until the watchers' requests have arrived, which have no response yet; */
    SETTLE_EACH_MS = 1,  /* and for each watcher so much longer */
    BESIDE_RATE = 200,   /* requests a second: a response may take 5 ms before the next one is due */
    /* RocketMQ */
    FIRST_OPAQUE = 1000000000, /* in all requests of standard input; each connection counts on from it */
    OPAQUE_DIGITS = 10,
    TYPE_JSON = 0,
    ROCKETMQ_PREFIX = 8, /* length, serialize type and header size */
    /* HTTP/2 */
    DATA = 0,
    HEADERS = 1,
    RST_STREAM = 3,
    SETTINGS = 4,
    PING = 6,
    GOAWAY = 7,
    END_STREAM = 1,
    ACK = 1,
    H2_PREFIX = 9, /* length of the payload (3 bytes), type, flags, stream */
    PREFACE = 24,  /* of the greeting, before its first frame */
};

/* How a stream of bytes is cut into frames, and what is a good response. */
enum framing {
    ROCKETMQ, /* a length and so many bytes; the response code must be 0 */
    LENGTH,   /* a length and so many bytes; a response has --least bytes */
    HTTP2,    /* gRPC, one request in flight; a response has --least bytes */
};

typedef struct {
    uint8_t *bytes;
    size_t size;
    size_t opaque_at; /* ROCKETMQ: where the opaque is */
} Item;

typedef struct {
    int fd;
    uint8_t *partial; /* the beginning of a frame that is not complete */
    size_t partial_size;
    uint64_t *sent_ns; /* ring of `depth` times at which the requests in flight were sent, */
    long oldest;       /* the oldest of them at this index */
    long in_flight;
    long acks_left;     /* frames that still have to come before the connection counts */
    uint32_t opaque;    /* ROCKETMQ: of the next request */
    uint32_t stream;    /* HTTP2: the last one that was opened */
    size_t stream_size; /* HTTP2: bytes of data that came on it */
    bool was_notified;  /* --watch: a response has come after the change, */
    bool is_done;       /* and the watcher knows what has changed */
} Peer;

static struct {
    enum framing framing;
    long port;
    long connections;
    long depth;
    long seconds;
    long warmup; /* seconds of load before the measurement */
    long rate;   /* requests a second of all connections together; 0: as many as get a response */
    long acks;   /* frames that the server sends on each connection before it counts */
    long least;  /* bytes of a good response */
    bool own;    /* each connection repeats the request of its number, instead of taking the next one */
    bool watch;
} options = {.connections = 200, .depth = 1, .seconds = 3};

static Item greeting, change, farewell, beside, *requests;
static long request_count;
static Peer *peers;
static Peer changer; /* --watch: the connection that sends the change, */
static Peer puller;  /* and the one that sends requests meanwhile */
static int epoll;
static bool is_unary;            /* HTTP2: each request opens a stream and ends it */
static uint32_t greeting_stream; /* HTTP2: the stream that the greeting opens; 0: none */
static long sent_count, ready_count, done_count, failed_count;
static uint64_t changed_ns;

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

static void *allocated(void *memory) {
    if (!memory) quit(1, "out of memory");
    return memory;
}

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void write_u32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* ------------------------------------------------------------------------------------------------------- latencies */

/* Buckets of 1 ns up to 256 ns, then 128 to each doubling: the width of a bucket is at most 0.8 % of its values. */
enum { BUCKETS = 7424 };

typedef struct {
    uint64_t count, largest_ns;
    uint64_t buckets[BUCKETS];
} Latencies;

static Latencies latencies, beside_latencies;

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

static void add_latency(Latencies *to, uint64_t ns) {
    to->count++;
    to->buckets[bucket_of(ns)]++;
    if (ns > to->largest_ns) to->largest_ns = ns;
}

/* The upper edge of the percentile's bucket, in milliseconds: rounding never makes the figure better. */
static double percentile_ms(const Latencies *of, double share) {
    uint64_t seen = 0, enough = (uint64_t)((double)of->count * share);
    size_t bucket = 0;
    while (bucket < BUCKETS - 1 && (seen += of->buckets[bucket]) <= enough && seen < of->count) bucket++;
    uint64_t ns = largest_in(bucket);
    return (double)(ns < of->largest_ns ? ns : of->largest_ns) / 1e6;
}

/* --------------------------------------------------------------------------------------------------------- sending */

/* The requests of one step of a connection, which are sent with one call. */
static uint8_t *stage;
static size_t stage_size;
static long staged_requests;

/* Sends the stage. All requests in flight fit into a socket's buffer, so that the socket takes them at once. */
static void send_stage(Peer *peer) {
    if (!stage_size) return;
    uint64_t now = now_ns();
    for (long i = 1; i <= staged_requests; i++)
        peer->sent_ns[(peer->oldest + peer->in_flight - i) % options.depth] = now;
    ssize_t sent = send(peer->fd, stage, stage_size, MSG_NOSIGNAL);
    if (sent < 0) quit(1, "cannot send: %s", strerror(errno));
    if ((size_t)sent < stage_size) quit(1, "cannot send %zu bytes: the socket is full", stage_size);
    stage_size = 0, staged_requests = 0;
}

/* Copies an item to the stage, with the connection's next opaque or, if it opens an HTTP/2 stream, its next stream. */
static void put_item(Peer *peer, const Item *item) {
    uint8_t *at = stage + stage_size;
    memcpy(at, item->bytes, item->size);
    stage_size += item->size;
    if (item->opaque_at) {
        uint32_t opaque = peer->opaque++;
        if (at[4] != TYPE_JSON) write_u32(at + item->opaque_at, opaque);
        else
            for (int digit = OPAQUE_DIGITS; digit--; opaque /= 10)
                at[item->opaque_at + (size_t)digit] = (uint8_t)('0' + opaque % 10);
    }
    if (options.framing == HTTP2 && item->size > H2_PREFIX && at[3] == HEADERS) {
        peer->stream += peer->stream ? 2 : 1;
        peer->stream_size = 0;
        for (size_t frame = 0; frame < item->size; frame += H2_PREFIX + (read_u32(at + frame) >> 8))
            write_u32(at + frame + 5, peer->stream);
    }
}

/* Puts the next request of the load, or the connection's own, on the stage, and counts it as in flight. */
static void put_request(Peer *peer) {
    put_item(peer, &requests[(options.own ? peer - peers : sent_count) % request_count]);
    sent_count++;
    staged_requests++;
    peer->in_flight++;
}

static void send_item(Peer *peer, const Item *item) {
    put_item(peer, item);
    send_stage(peer);
}

/* ------------------------------------------------------------------------------------------------------- receiving */

static void take_notification(Peer *peer, bool is_good) {
    /* ZooKeeper's notification does not contain the change: the watcher has to read it with the second request */
    if (request_count > 1 && !peer->was_notified) {
        peer->was_notified = true;
        put_item(peer, &requests[1]);
        return;
    }
    if (peer->is_done) return;
    peer->is_done = true;
    done_count++;
    failed_count += !is_good;
    add_latency(&latencies, now_ns() - changed_ns);
}

static void take_response(Peer *peer, bool is_good, uint64_t now) {
    if (peer == &changer) return;
    if (peer == &puller) {
        add_latency(&beside_latencies, now - peer->sent_ns[0]);
        failed_count += !is_good;
        peer->in_flight = 0;
    } else if (peer->acks_left) {
        if (--peer->acks_left) return;
        ready_count++;
        if (!options.watch && !options.rate) put_request(peer);
    } else if (options.watch) {
        take_notification(peer, is_good);
    } else {
        if (!peer->in_flight) quit(1, "a response without a request");
        add_latency(&latencies, now - peer->sent_ns[peer->oldest]);
        failed_count += !is_good;
        peer->oldest = (peer->oldest + 1) % options.depth;
        peer->in_flight--;
        if (!options.rate) put_request(peer);
    }
}

/* Whether the response code is 0. In JSON, quotes in a string have a backslash before them: a remark is no member. */
static bool is_success(const uint8_t *frame, size_t size) {
    const uint8_t *header = frame + ROCKETMQ_PREFIX;
    if (size < ROCKETMQ_PREFIX + 2) return false;
    if (frame[4] != TYPE_JSON) return header[0] == 0x96 && header[1] == 0;
    size_t header_size = read_u32(frame + 4) & 0xffffff;
    if (header_size > size - ROCKETMQ_PREFIX) return false;
    const uint8_t *code = memmem(header, header_size, "\"code\":0", 8);
    return code && !isdigit(code[8]);
}

/* The response to a request that ends its stream ends the stream, too. On longer streams each DATA frame is one. */
static void take_http2_frame(Peer *peer, uint8_t *frame, size_t size, uint64_t now) {
    uint8_t type = frame[3], flags = frame[4];
    if (type == RST_STREAM || type == GOAWAY) quit(1, "HTTP/2 frame of type %d: refused", type);
    if ((type == SETTINGS || type == PING) && !(flags & ACK)) {
        if (type == SETTINGS) memset(frame, 0, 3), size = H2_PREFIX; /* its acknowledgement is empty */
        frame[4] = ACK;
        if (send(peer->fd, frame, size, MSG_NOSIGNAL) != (ssize_t)size) quit(1, "cannot send: %s", strerror(errno));
        return;
    }
    if (type == DATA) peer->stream_size += size - H2_PREFIX;
    bool is_end = type == HEADERS && flags & END_STREAM;
    if (is_end && !peer->stream_size && peer != &changer) quit(1, "a response without data: a gRPC error");
    if (is_unary ? is_end : type == DATA) {
        bool is_good = peer->stream_size >= (size_t)options.least;
        if (!is_unary) peer->stream_size = 0;
        take_response(peer, is_good, now);
    }
}

static void take_frame(Peer *peer, uint8_t *frame, size_t size, uint64_t now) {
    if (options.framing == HTTP2) take_http2_frame(peer, frame, size, now);
    else take_response(peer, options.framing == ROCKETMQ ? is_success(frame, size) : size - 4 >= (size_t)options.least, now);
}

/* Reads once, takes all frames that are complete, and sends the requests that follow from them. */
static void receive(Peer *peer) {
    static uint8_t buffer[FRAME_LIMIT + READ_AT_ONCE];
    if (peer->partial_size) memcpy(buffer, peer->partial, peer->partial_size);
    ssize_t got = recv(peer->fd, buffer + peer->partial_size, READ_AT_ONCE, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) quit(1, "one of %ld connections: %s", options.connections, got ? strerror(errno) : "closed by the peer");
    uint64_t now = now_ns();
    uint8_t *at = buffer, *end = buffer + peer->partial_size + got;
    size_t prefix = options.framing == HTTP2 ? H2_PREFIX : 4;
    while ((size_t)(end - at) >= prefix) {
        uint32_t first = read_u32(at);
        size_t size = prefix + (options.framing == HTTP2 ? first >> 8 : first);
        if (size > FRAME_LIMIT) quit(1, "frame of %zu bytes, limit %d", size, FRAME_LIMIT);
        if ((size_t)(end - at) < size) break;
        take_frame(peer, at, size, now);
        at += size;
    }
    peer->partial_size = (size_t)(end - at);
    if (peer->partial_size) {
        peer->partial = allocated(realloc(peer->partial, peer->partial_size));
        memcpy(peer->partial, at, peer->partial_size);
    }
    send_stage(peer);
}

/* ------------------------------------------------------------------------------------------------------ event loop */

static void receive_ready(int timeout_ms) {
    struct epoll_event ready[EVENTS];
    int count = epoll_wait(epoll, ready, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) receive(ready[i].data.ptr);
}

/* Sends the requests that are due, and returns when the next one is. */
static uint64_t send_due(uint64_t began, uint64_t now) {
    for (;;) {
        uint64_t due = began + (uint64_t)((double)sent_count * 1e9 / (double)options.rate);
        Peer *peer = &peers[sent_count % options.connections];
        if (due > now || peer->in_flight) return due;
        put_request(peer);
        send_stage(peer);
        peer->sent_ns[peer->oldest] = due;
    }
}

/* Sends and receives until a time, and returns the time at the end; the first request of --rate was due at `began`. */
static uint64_t run_until(uint64_t began, uint64_t until) {
    uint64_t now;
    while ((now = now_ns()) < until) {
        uint64_t next = options.rate ? send_due(began, now) : until;
        /* the last millisecond is not slept through: a request would be late */
        receive_ready(next > now ? (int)((next - now) / 1000000) : 0);
    }
    return now;
}

/* Each connection has an address of its own in 127.1.0.0/16, as the clients of an installation have: a server may divide
 * its time between addresses. */
static void bind_own_address(int fd) {
    static uint32_t next = FIRST_ADDRESS;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(next++)};
    if (bind(fd, (struct sockaddr *)&own, sizeof own)) quit(1, "bind: %s", strerror(errno));
}

static void connect_peer(Peer *peer) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    struct timeval patience = {.tv_sec = CONNECT_SECONDS};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    int one = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer->fd < 0) quit(1, "socket: %s", strerror(errno));
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(peer->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    bind_own_address(peer->fd);
    if (connect(peer->fd, (struct sockaddr *)&to, sizeof to))
        quit(1, "cannot connect to 127.0.0.1:%ld: %s", options.port,
             errno == EINPROGRESS ? "not accepted in time" : strerror(errno));
    if (fcntl(peer->fd, F_SETFL, O_NONBLOCK)) quit(1, "fcntl: %s", strerror(errno));
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, peer->fd, &event)) quit(1, "epoll_ctl: %s", strerror(errno));
    peer->sent_ns = allocated(calloc((size_t)options.depth, sizeof *peer->sent_ns));
    peer->acks_left = options.acks;
    peer->opaque = FIRST_OPAQUE;
    send_item(peer, &greeting);
    peer->stream = greeting_stream;
}

/* Sends the first requests, and waits until every connection counts. */
static void begin(void) {
    for (long i = 0; i < options.connections; i++) {
        if (options.watch) put_item(&peers[i], &requests[0]);
        for (long slot = 0; !options.watch && !options.acks && !options.rate && slot < options.depth; slot++)
            put_request(&peers[i]);
        send_stage(&peers[i]);
    }
    while (options.acks && ready_count < options.connections) receive_ready(-1);
}

/* --------------------------------------------------------------------------------------------------------- results */

static double oldest_in_flight_ms(uint64_t now) {
    uint64_t oldest = now;
    for (long i = 0; i < options.connections; i++) {
        const Peer *peer = &peers[i];
        if (peer->in_flight && peer->sent_ns[peer->oldest] < oldest) oldest = peer->sent_ns[peer->oldest];
    }
    return (double)(now - oldest) / 1e6;
}

static void print_result(double took, double oldest_ms) {
    if (!latencies.count) quit(1, "no response in %.1f s", took);
    if (failed_count) quit(1, "%ld of %ld responses are failures", failed_count, (long)latencies.count);
    double slowest_ms = (double)latencies.largest_ns / 1e6;
    printf("{\"responses\":%ld,\"per_second\":%.0f,\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"p999_ms\":%.4f,"
           "\"longest_ms\":%.4f,\"beside_p99_ms\":%.4f}\n",
           (long)latencies.count, (double)latencies.count / took, percentile_ms(&latencies, .5),
           percentile_ms(&latencies, .99), percentile_ms(&latencies, .999),
           slowest_ms > oldest_ms ? slowest_ms : oldest_ms, percentile_ms(&beside_latencies, .99));
}

static void measure_load(void) {
    uint64_t began = now_ns();
    begin();
    run_until(began, began + (uint64_t)options.warmup * 1000000000u);
    memset(&latencies, 0, sizeof latencies);
    failed_count = 0;
    uint64_t from = now_ns();
    uint64_t now = run_until(began, from + (uint64_t)options.seconds * 1000000000u);
    print_result((double)(now - from) / 1e9, oldest_in_flight_ms(now));
}

/* Sends the request of the puller if it is due: the latency counts from then, however late the earlier response is. */
static void pull_if_due(uint64_t began) {
    static uint64_t count;
    uint64_t due = began + count * (1000000000u / BESIDE_RATE);
    if (puller.in_flight || due > now_ns()) return;
    send_item(&puller, &beside);
    puller.in_flight = 1;
    puller.sent_ns[0] = due;
    count++;
}

static void measure_watches(void) {
    begin();
    connect_peer(&changer);
    if (beside.size) connect_peer(&puller);
    uint64_t now = now_ns();
    run_until(now, now + (uint64_t)(SETTLE_MS + SETTLE_EACH_MS * options.connections) * 1000000u);
    if (done_count) quit(1, "%ld were notified before anything changed", done_count);
    changed_ns = now_ns();
    send_item(&changer, &change);
    while (done_count < options.connections) {
        if (beside.size) pull_if_due(changed_ns);
        receive_ready(beside.size ? 0 : -1);
    }
    print_result((double)(now_ns() - changed_ns) / 1e9, 0);
    send_item(&changer, &farewell);
}

/* --------------------------------------------------------------------------------------------------------- options */

static Item read_item(void) {
    uint8_t prefix[4];
    if (fread(prefix, 1, sizeof prefix, stdin) != sizeof prefix) return (Item){0};
    size_t size = read_u32(prefix);
    uint8_t *bytes = allocated(malloc(size + 1));
    if (fread(bytes, 1, size, stdin) != size) quit(2, "standard input ends within an item");
    return (Item){bytes, size, 0};
}

/* Where the opaque of a RocketMQ request is. */
static size_t opaque_of(const Item *item) {
    bool is_json = item->bytes[4] == TYPE_JSON;
    const char *mark = is_json ? "\"opaque\":1000000000" : "\xce\x3b\x9a\xca"; /* the last byte of FIRST_OPAQUE is 0 */
    const uint8_t *at = memmem(item->bytes, item->size, mark, is_json ? 19 : 5);
    if (!at) quit(2, "a request without the opaque %d", FIRST_OPAQUE);
    return (size_t)(at - item->bytes) + (is_json ? 9 : 1);
}

static void read_items(void) {
    long room = 0;
    greeting = read_item(), change = read_item(), farewell = read_item(), beside = read_item();
    size_t largest = greeting.size > change.size ? greeting.size : change.size;
    if (farewell.size > largest) largest = farewell.size;
    if (beside.size > largest) largest = beside.size;
    for (Item item; (item = read_item()).bytes;) {
        if (options.framing == ROCKETMQ) item.opaque_at = opaque_of(&item);
        if (item.size > largest) largest = item.size;
        if (request_count == room) requests = allocated(realloc(requests, (size_t)(room = 2 * room + 16) * sizeof item));
        requests[request_count++] = item;
    }
    if (!request_count) quit(2, "no request on standard input");
    stage = allocated(malloc((size_t)options.depth * largest));
}

/* The HTTP/2 stream of the greeting's last frame, and whether the last frame of the first request ends its stream. */
static void read_streams(void) {
    for (size_t at = PREFACE; at + H2_PREFIX <= greeting.size; at += H2_PREFIX + (read_u32(greeting.bytes + at) >> 8))
        greeting_stream = read_u32(greeting.bytes + at + 5);
    const Item *first = &requests[0];
    for (size_t at = 0; at + H2_PREFIX <= first->size; at += H2_PREFIX + (read_u32(first->bytes + at) >> 8))
        is_unary = first->bytes[at + 4] & END_STREAM;
}

static enum framing framing_named(const char *name) {
    static const char *const names[] = {"rocketmq", "length", "http2"};
    for (int framing = 0; framing < 3; framing++)
        if (!strcmp(name, names[framing])) return (enum framing)framing;
    quit(2, "--framing %s: not rocketmq, length or http2", name);
}

int main(int argc, char **argv) {
    static const struct option known[] = {
        {"port", required_argument, NULL, 'p'},        {"framing", required_argument, NULL, 'f'},
        {"connections", required_argument, NULL, 'c'}, {"depth", required_argument, NULL, 'd'},
        {"seconds", required_argument, NULL, 's'},     {"warmup", required_argument, NULL, 'w'},
        {"rate", required_argument, NULL, 'r'},        {"own", no_argument, NULL, 'o'},
        {"watch", no_argument, NULL, 'W'},             {"acks", required_argument, NULL, 'a'},
        {"least", required_argument, NULL, 'l'},       {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) switch (option) {
            case 'p': options.port = atol(optarg); break;
            case 'f': options.framing = framing_named(optarg); break;
            case 'c': options.connections = atol(optarg); break;
            case 'd': options.depth = atol(optarg); break;
            case 's': options.seconds = atol(optarg); break;
            case 'w': options.warmup = atol(optarg); break;
            case 'r': options.rate = atol(optarg); break;
            case 'o': options.own = true; break;
            case 'W': options.watch = true; break;
            case 'a': options.acks = atol(optarg); break;
            case 'l': options.least = atol(optarg); break;
            default: return 2;
        }
    alarm((unsigned)(GRACE_SECONDS + options.warmup + options.seconds));
    read_items();
    if (options.framing == HTTP2) read_streams();
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files)) quit(1, "getrlimit: %s", strerror(errno));
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files)) quit(1, "setrlimit: %s", strerror(errno));
    epoll = epoll_create1(EPOLL_CLOEXEC);
    peers = allocated(calloc((size_t)options.connections, sizeof *peers));
    for (long i = 0; i < options.connections; i++) connect_peer(&peers[i]);
    if (options.watch) measure_watches();
    else measure_load();
    for (long i = 0; farewell.size && i < options.connections; i++) send_item(&peers[i], &farewell);
    return 0;
}
