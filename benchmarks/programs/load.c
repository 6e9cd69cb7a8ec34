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
#include "frames.h"

#include <getopt.h>

#include "latencies.h"

enum {
    EVENTS = 256,
    DEPTH_LIMIT = 1024,
    ITEM_LIMIT = 1 << 20,
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

static const char usage[] =
    "usage: load --port P [options] <ITEMS\n"
    "\n"
    "Sends requests to 127.0.0.1:P and prints one line of JSON: responses a second, latency percentiles in microseconds,\n"
    "failed responses, and the age of the oldest request without a response. Items come on standard input, each behind\n"
    "its length (u32, big-endian): the greeting of each connection, the change that watchers wait for, the farewell of\n"
    "each connection, then the requests, which are sent in turn.\n"
    "\n"
    "  --framing F      rocketmq, length (u32 before each frame) or http2; default rocketmq\n"
    "  --connections N  default 200, at most 60000\n"
    "  --depth N        rocketmq: requests in flight on each connection, default 1\n"
    "  --seconds S      how long is measured, default 3, at most 600\n"
    "  --warmup S       how long requests are sent before that, default 0\n"
    "  --rate N         rocketmq: requests a second from all connections together, one in flight on each; default: as\n"
    "                   many as are answered\n"
    "  --own            each connection sends the request of its number again and again\n"
    "  --watch          send each connection's first request, then the change, and measure until all have a response\n"
    "  --acks N         frames that come on each connection before it counts, default 0\n"
    "  --least N        length, http2: a response of fewer bytes is a failure, default 0\n"
    "\n"
    "Exit code 0, 1 when something fails, 2 for wrong options. Failed responses, such as RocketMQ's with another code\n"
    "than 0, are counted.\n";

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
    long port, connections, depth, seconds, warmup, rate, acks, least;
    bool own, watch;
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
    if (size > ITEM_LIMIT) quit(2, "item of %zu bytes, limit %d", size, ITEM_LIMIT);
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
        {"least", required_argument, NULL, 'l'},   {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int option;
    program = "load";
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) switch (option) {
            case 'p': wanted.port = whole_number("port", optarg, 1, 65535); break;
            case 'f': wanted.framing = framing_named(optarg); break;
            case 'c': wanted.connections = whole_number("connections", optarg, 1, CONNECTION_LIMIT); break;
            case 'd': wanted.depth = whole_number("depth", optarg, 1, DEPTH_LIMIT); break;
            case 's': wanted.seconds = whole_number("seconds", optarg, 1, 600); break;
            case 'w': wanted.warmup = whole_number("warmup", optarg, 0, 60); break;
            case 'r': wanted.rate = whole_number("rate", optarg, 1, 1000000); break;
            case 'o': wanted.own = true; break;
            case 'W': wanted.watch = true; break;
            case 'a': wanted.acks = whole_number("acks", optarg, 0, 2); break;
            case 'l': wanted.least = whole_number("least", optarg, 0, ITEM_LIMIT); break;
            case 'h': fputs(usage, stdout); return 0;
            default: fputs("try --help\n", stderr); return 2;
        }
    if (optind < argc) quit(2, "%s: not an option; try --help", argv[optind]);
    if (!wanted.port) quit(2, "--port is missing; try --help");
    if (wanted.framing == ROCKETMQ && wanted.watch) quit(2, "--watch needs --framing length or http2");
    if (wanted.framing != ROCKETMQ && (wanted.depth > 1 || wanted.rate)) quit(2, "--depth and --rate need RocketMQ's framing");
    if (wanted.rate && wanted.depth > 1) quit(2, "--rate and --depth do not go together");

    end_after(GRACE_SECONDS + wanted.warmup + wanted.seconds);
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
