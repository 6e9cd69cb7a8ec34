/* registry: how many questions does a registry that is not RocketMQ's answer, and how soon has it told all its watchers?
 *
 * Like ../load.c, it is a closed loop of one thread with one question in flight on each connection; it knows of a
 * protocol only where its frames end. What is sent comes ready-made from standard input: the greeting of each
 * connection, the change that watchers wait for, the farewell of each connection, then the questions, each behind its
 * length (u32, big-endian).
 */
#include "../frames.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>

#include "../latencies.h"

enum {
    EVENTS = 256,
    CONNECTION_LIMIT = 20000,
    ITEM_LIMIT = 1 << 20,
    FRAME_LIMIT = 1 << 18,
    GRACE_SECONDS = 30, /* above the time that was asked for */
    SETTLE_MS = 300,    /* for questions to arrive that are answered only when something changes */
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
    "usage: registry --port P --framing length|http2 [options] <QUESTIONS\n"
    "\n"
    "  --connections N  default 200\n"
    "  --seconds S      how long is asked, default 2, at most 60\n"
    "  --watch          send each connection's question, then the change, and measure until all have been told\n"
    "  --acks N         frames that come on each connection before it counts, default 0\n"
    "  --least N        an answer of fewer bytes is a failure, default 0\n";

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Item;

typedef struct {
    int fd;
    uint8_t *held; /* the beginning of a frame */
    size_t held_size;
    uint32_t stream; /* of HTTP/2, the last one opened */
    size_t data;     /* bytes that came on it */
    uint64_t sent_ns;
    long acks_left;
    bool has_asked_again, knows;
} Peer;

static struct {
    long port, connections, seconds, acks, least;
    bool http2, watch;
} wanted = {.connections = 200, .seconds = 2};

static Item greeting, change, farewell, *questions;
static uint32_t greeting_stream; /* of HTTP/2, that the greeting opens */
static size_t question_count, next_question;
static Peer *peers, changer;
static int epoll;
static long ready_count, knowing_count;
static bool is_counting, is_unary;
static uint64_t failed, changed_ns;
static Latencies latencies;

/* ---------------------------------------------------------------------------------------------------- what is sent */

static Item read_item(void) {
    uint8_t prefix[4];
    if (fread(prefix, 1, sizeof prefix, stdin) != sizeof prefix) return (Item){0};
    size_t size = read_u32(prefix);
    if (size > ITEM_LIMIT) quit(2, "item of %zu bytes, limit %d", size, ITEM_LIMIT);
    uint8_t *bytes = allocated(malloc(size + 1));
    if (fread(bytes, 1, size, stdin) != size) quit(2, "standard input ends within an item");
    return (Item){bytes, size};
}

static void read_items(void) {
    greeting = read_item(), change = read_item(), farewell = read_item();
    for (Item item; (item = read_item()).bytes;) {
        questions = allocated(realloc(questions, (question_count + 1) * sizeof *questions));
        questions[question_count++] = item;
    }
    if (!question_count) quit(2, "no question on standard input");
}

static void put_out(Peer *peer, const uint8_t *bytes, size_t size) {
    /* blocking: what is asked is far smaller than any socket's buffer */
    if (size && send(peer->fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size) quit(1, "cannot send: %s", strerror(errno));
}

/* A question of HTTP/2 that begins with HEADERS opens the connection's next stream. */
static void ask(Peer *peer, const Item *item) {
    static uint8_t stage[ITEM_LIMIT];
    memcpy(stage, item->bytes, item->size);
    if (wanted.http2 && item->size > H2_PREFIX && stage[3] == HEADERS) {
        peer->stream += peer->stream ? 2 : 1;
        for (size_t at = 0; at < item->size; at += H2_PREFIX + (read_u32(stage + at) >> 8))
            write_u32(stage + at + 5, peer->stream);
    }
    peer->data = 0;
    peer->sent_ns = now_ns();
    put_out(peer, stage, item->size);
}

static void ask_next(Peer *peer) {
    ask(peer, &questions[next_question]);
    if (++next_question == question_count) next_question = 0;
}

/* --------------------------------------------------------------------------------------------------- what comes in */

static void was_told(Peer *peer, size_t size) {
    if (question_count > 1 && !peer->has_asked_again) {
        /* told that there is news, not what it is */
        peer->has_asked_again = true;
        ask(peer, &questions[1]);
        return;
    }
    if (peer->knows) return;
    failed += size < (size_t)wanted.least;
    peer->knows = true;
    knowing_count++;
    add_latency(&latencies, now_ns() - changed_ns);
}

/* An answer of `size` bytes is complete. */
static void answered(Peer *peer, size_t size) {
    if (peer == &changer) return;
    if (peer->acks_left) {
        if (--peer->acks_left) return;
        ready_count++;
        if (!wanted.watch) ask_next(peer);
    } else if (wanted.watch) {
        was_told(peer, size);
    } else {
        failed += size < (size_t)wanted.least;
        if (is_counting) add_latency(&latencies, now_ns() - peer->sent_ns);
        ask_next(peer);
    }
}

/* The one answer to a question that ends its stream ends it, too; on others each DATA frame is an answer. */
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
        if (!peer->data && peer != &changer) quit(1, "an answer without data: a gRPC error");
        if (is_unary) answered(peer, peer->data);
    }
}

static void receive_frames(Peer *peer) {
    static uint8_t buffer[FRAME_LIMIT + READ_AT_ONCE];
    memcpy(buffer, peer->held, peer->held_size);
    ssize_t got = recv(peer->fd, buffer + peer->held_size, READ_AT_ONCE, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) quit(1, "one of %ld connections: %s", wanted.connections, got ? strerror(errno) : "closed by the peer");
    uint8_t *at = buffer, *end = buffer + peer->held_size + got;
    while (end - at >= (wanted.http2 ? H2_PREFIX : 4)) {
        size_t size = wanted.http2 ? H2_PREFIX + (read_u32(at) >> 8) : 4 + (size_t)read_u32(at);
        if (size > FRAME_LIMIT) quit(1, "frame of %zu bytes, limit %d", size, FRAME_LIMIT);
        if ((size_t)(end - at) < size) break;
        if (wanted.http2) take_http2(peer, at, size);
        else answered(peer, size - 4);
        at += size;
    }
    peer->held_size = (size_t)(end - at);
    if (peer->held_size) peer->held = allocated(realloc(peer->held, peer->held_size));
    memcpy(peer->held, at, peer->held_size);
}

static void wait_and_receive(int timeout_ms) {
    struct epoll_event ready[EVENTS];
    int count = epoll_wait(epoll, ready, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) receive_frames(ready[i].data.ptr);
}

static void go_on_until(uint64_t until) {
    for (uint64_t now; (now = now_ns()) < until;) wait_and_receive((int)((until - now) / 1000000 + 1));
}

/* ----------------------------------------------------------------------------------------------------------- modes */

static void connect_peer(Peer *peer) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)wanted.port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0) quit(1, "socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&to, sizeof to))
        quit(1, "cannot connect to 127.0.0.1:%ld: %s", wanted.port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    *peer = (Peer){.fd = fd, .acks_left = wanted.acks, .stream = greeting_stream};
    watch(epoll, EPOLL_CTL_ADD, fd, peer, EPOLLIN);
    put_out(peer, greeting.bytes, greeting.size);
}

static void connect_all(void) {
    if (descriptor_limit() < (unsigned long long)wanted.connections + 16)
        quit(1, "%ld connections: %llu descriptors allowed (ulimit -Hn)", wanted.connections, descriptor_limit());
    epoll = epoll_create1(EPOLL_CLOEXEC);
    peers = allocated(calloc((size_t)wanted.connections, sizeof *peers));
    for (long i = 0; i < wanted.connections; i++) {
        connect_peer(&peers[i]);
        if (wanted.watch) ask(&peers[i], &questions[0]);
        else if (!wanted.acks) ask_next(&peers[i]);
    }
    while (wanted.acks && ready_count < wanted.connections) wait_and_receive(-1);
}

static void print_latencies(double took, double oldest_us) {
    if (!latencies.count) quit(1, "no answer");
    printf("{\"answers\":%llu,\"answers_per_second\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,"
           "\"max_us\":%.1f,\"oldest_unanswered_us\":%.1f,\"failed\":%llu}\n",
           (unsigned long long)latencies.count, (double)latencies.count / took, percentile_us(&latencies, .5),
           percentile_us(&latencies, .99), percentile_us(&latencies, .999), (double)latencies.largest_ns / 1e3,
           oldest_us, (unsigned long long)failed);
}

static void measure_answers(void) {
    uint64_t from = now_ns(), oldest;
    is_counting = true;
    go_on_until(from + (uint64_t)wanted.seconds * 1000000000u);
    uint64_t now = oldest = now_ns();
    for (long i = 0; i < wanted.connections; i++)
        if (peers[i].sent_ns < oldest) oldest = peers[i].sent_ns;
    print_latencies((double)(now - from) / 1e9, (double)(now - oldest) / 1e3);
}

static void measure_watches(void) {
    connect_peer(&changer);
    go_on_until(now_ns() + SETTLE_MS * 1000000u);
    if (knowing_count) quit(1, "%ld were told before anything changed", knowing_count);
    changed_ns = now_ns();
    ask(&changer, &change);
    while (knowing_count < wanted.connections) wait_and_receive(-1);
    print_latencies((double)(now_ns() - changed_ns) / 1e9, 0);
}

static bool is_http2(const char *framing) {
    if (!strcmp(framing, "http2")) return true;
    if (strcmp(framing, "length")) quit(2, "--framing %s: not length or http2", framing);
    return false;
}

/* Whether the last frame of the first question ends its stream. */
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
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"framing", required_argument, NULL, 'f'},
                                            {"connections", required_argument, NULL, 'c'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"watch", no_argument, NULL, 'w'},
                                            {"acks", required_argument, NULL, 'a'},
                                            {"least", required_argument, NULL, 'l'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;
    program = "registry";
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) switch (option) {
            case 'p': wanted.port = whole_number("port", optarg, 1, 65535); break;
            case 'f': wanted.http2 = is_http2(optarg); break;
            case 'c': wanted.connections = whole_number("connections", optarg, 1, CONNECTION_LIMIT); break;
            case 's': wanted.seconds = whole_number("seconds", optarg, 1, 60); break;
            case 'w': wanted.watch = true; break;
            case 'a': wanted.acks = whole_number("acks", optarg, 0, 2); break;
            case 'l': wanted.least = whole_number("least", optarg, 0, ITEM_LIMIT); break;
            case 'h': fputs(usage, stdout); return 0;
            default: fputs("try --help\n", stderr); return 2;
        }
    if (!wanted.port) quit(2, "--port is missing; try --help");
    end_after(GRACE_SECONDS + wanted.seconds);
    read_items();
    if (wanted.http2) {
        greeting_stream = stream_of(&greeting);
        is_unary = ends_its_stream(&questions[0]);
    }
    connect_all();
    if (wanted.watch) measure_watches();
    else measure_answers();
    if (wanted.watch) put_out(&changer, farewell.bytes, farewell.size);
    for (long i = 0; i < wanted.connections; i++) put_out(&peers[i], farewell.bytes, farewell.size);
    return 0;
}
