/* load: how many requests does a name server answer in a second, and how late?
 *
 * Closed loop: each connection keeps a fixed number of requests in flight and asks again when an answer is complete.
 * With --rate connections ask in turn, each when its time has come, however late the answers are; one that still waits
 * is late itself, and its next answer counts from when the question was due.
 * Answers may come in any order; each is matched to its question by its opaque.
 * One thread: pin it to a core of its own.
 */
#include "frames.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "latencies.h"
#include "questions.h"

enum {
    EVENTS = 256,
    DEPTH_LIMIT = 1024,
    CONNECTION_LIMIT = 60000,
    CONNECT_SECONDS = 5, /* a listener that is full for longer than this is a failure */
    GRACE_SECONDS = 60,  /* for connecting, above the time that was asked for */
};

static const char usage[] =
    "usage: load --port P [--mode route|heartbeat|version] [options]\n"
    "       load --port P --idle N [--greet] [--seconds S]\n"
    "\n"
    "Asks the name server on 127.0.0.1:P and prints one line of JSON: answers and bytes per second, latency\n"
    "percentiles in microseconds, how many answers had another code than 0, and the age of the oldest question\n"
    "without an answer.\n"
    "\n"
    "  --mode M            route: GET_ROUTEINFO_BY_TOPIC (105), heartbeat: BROKER_HEARTBEAT (904),\n"
    "                      version: QUERY_DATA_VERSION (322); default route\n"
    "  --header H          json or native (msgpack, serialize type 77); default json\n"
    "  --connections N     default 200\n"
    "  --depth N           requests in flight on each connection, default 1\n"
    "  --seconds S         how long is measured, default 3, at most 600\n"
    "  --warmup S          how long is asked before that, default 0\n"
    "  --rate N            questions a second from all connections together, one in flight on each; default: as many\n"
    "                      as are answered\n"
    "  --own               each connection asks the question of its number again and again\n"
    "\n"
    "  --topics N          route: topics asked for in turn, default 1000\n"
    "  --topic PATTERN     their names, %d is the number from 0; default TopicTest%d\n"
    "\n"
    "  --brokers N         heartbeat, version: brokers spoken for in turn, default 1; %d below is the number from 0\n"
    "  --cluster PATTERN   default DefaultCluster\n"
    "  --broker PATTERN    default broker-%d\n"
    "  --addr PATTERN      default 127.0.0.1:%d\n"
    "  --broker-id N       default 0\n"
    "  --data-version C,T  version: counter and timestamp of the data version asked about, default 1,0\n"
    "\n"
    "  --idle N            opens N connections, prints {\"idle\":N}, and holds them until standard input ends,\n"
    "                      or for S seconds (default 600)\n"
    "  --greet             with --idle: one question on each connection first, so that the server has heard of it\n"
    "\n"
    "Exit code 0, 1 when something fails, 2 for wrong options. Answers with another code than 0 are no failure.\n";

/* One connection. Question s of its `depth` has the opaque FIRST_OPAQUE + s + k * depth in its k-th use. */
typedef struct {
    int fd;
    Inflow in;
    Outflow out;
    uint32_t *opaques; /* in flight in each slot */
    uint64_t *sent_ns; /* and since when */
} Peer;

static struct {
    long port, connections, depth, seconds, warmup, idle, rate;
    bool greet, own;
} wanted = {.connections = 200, .depth = 1, .seconds = -1};

/* What is counted while measuring. */
static struct {
    uint64_t bytes, failed; /* answers with another code than 0 */
    Latencies latencies;
} tally;

static Peer *peers;
static int epoll;
static bool asking = true; /* again after each answer */
static long asked;         /* questions, until now */

/* The questions of the current step, sent with one call. */
static uint8_t *stage;
static size_t staged;
static long staged_slots[DEPTH_LIMIT], staged_count;
static uint64_t read_at_ns;

/* ------------------------------------------------------------------------------------------- questions and answers */

static void ask(Peer *peer, long slot) {
    staged += put_question(stage + staged, wanted.own ? peer - peers : asked, peer->opaques[slot]);
    asked++;
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

static void answered(void *whose, const Head *head) {
    Peer *peer = whose;
    long slot = (long)((head->opaque - FIRST_OPAQUE) % wanted.depth);
    if (slot < 0 || !peer->sent_ns[slot] || head->opaque != peer->opaques[slot])
        quit(1, "answer to opaque %lld, which is not in flight", (long long)head->opaque);
    if (!read_at_ns) read_at_ns = now_ns();
    add_latency(&tally.latencies, read_at_ns - peer->sent_ns[slot]);
    tally.failed += head->code != 0;
    peer->sent_ns[slot] = 0;
    peer->opaques[slot] += (uint32_t)wanted.depth;
    if (asking) ask(peer, slot);
}

static void step(Peer *peer, uint32_t events) {
    if (events & EPOLLOUT && is_waiting(&peer->out)) {
        const char *wrong = send_kept(peer->fd, &peer->out);
        if (wrong) quit(1, "cannot send: %s", wrong);
        if (!is_waiting(&peer->out)) watch(epoll, EPOLL_CTL_MOD, peer->fd, peer, EPOLLIN);
    }
    if (!(events & ~(uint32_t)EPOLLOUT)) return;
    read_at_ns = 0;
    const char *wrong = receive(peer->fd, &peer->in, &tally.bytes, answered, peer);
    if (wrong) quit(1, "one of %ld connections: %s", wanted.connections, wrong);
    if (staged_count) send_stage(peer);
}

/* Asks what is due, and returns when the next question is. */
static uint64_t ask_due(uint64_t from, uint64_t now) {
    for (;;) {
        uint64_t due = from + (uint64_t)((double)asked * 1e9 / (double)wanted.rate);
        Peer *peer = &peers[asked % wanted.connections];
        if (due > now || peer->sent_ns[0]) return due;
        ask(peer, 0);
        send_stage(peer);
        peer->sent_ns[0] = due;
    }
}

static void wait_and_step(int timeout_ms) {
    struct epoll_event ready[EVENTS];
    int count = epoll_wait(epoll, ready, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) step(ready[i].data.ptr, ready[i].events);
}

/* ----------------------------------------------------------------------------------------------------- connections */

static void connect_peer(Peer *peer) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)wanted.port)};
    struct timeval patience = {.tv_sec = CONNECT_SECONDS};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0) quit(1, "socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, sizeof to))
        quit(1, "cannot connect to 127.0.0.1:%ld: %s", wanted.port,
             errno == EINPROGRESS ? "not accepted in time" : strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fcntl(fd, F_SETFL, O_NONBLOCK)) quit(1, "fcntl: %s", strerror(errno));
    peer->fd = fd;
    peer->opaques = allocated(calloc((size_t)wanted.depth, sizeof *peer->opaques));
    peer->sent_ns = allocated(calloc((size_t)wanted.depth, sizeof *peer->sent_ns));
    for (long slot = 0; slot < wanted.depth; slot++) peer->opaques[slot] = (uint32_t)(FIRST_OPAQUE + slot);
    watch(epoll, EPOLL_CTL_ADD, fd, peer, EPOLLIN);
}

static void connect_all(void) {
    if (descriptor_limit() < (unsigned long long)wanted.connections + 16)
        quit(1, "%ld connections: %llu descriptors allowed (ulimit -Hn)", wanted.connections, descriptor_limit());
    epoll = epoll_create1(EPOLL_CLOEXEC);
    peers = allocated(calloc((size_t)wanted.connections, sizeof *peers));
    for (long i = 0; i < wanted.connections; i++) connect_peer(&peers[i]);
}

static void ask_everywhere(void) {
    for (long i = 0; i < wanted.connections; i++) {
        for (long slot = 0; slot < wanted.depth; slot++) ask(&peers[i], slot);
        send_stage(&peers[i]);
    }
}

/* ----------------------------------------------------------------------------------------------------------- modes */

static double oldest_question_us(uint64_t now) {
    uint64_t oldest = now;
    for (long i = 0; i < wanted.connections; i++)
        for (long slot = 0; slot < wanted.depth; slot++)
            if (peers[i].sent_ns[slot] && peers[i].sent_ns[slot] < oldest) oldest = peers[i].sent_ns[slot];
    return (double)(now - oldest) / 1e3;
}

/* Goes on until then, and returns when that was; `began` is when the first question was due. */
static uint64_t ask_until(uint64_t began, uint64_t until) {
    uint64_t now;
    while ((now = now_ns()) < until) {
        uint64_t next = wanted.rate ? ask_due(began, now) : until;
        /* the last millisecond is not slept through: a question would be late */
        wait_and_step(next > now ? (int)((next - now) / 1000000) : 0);
    }
    return now;
}

static int measure(void) {
    connect_all();
    uint64_t now = now_ns(), from = now + (uint64_t)wanted.warmup * 1000000000u;
    uint64_t until = from + (uint64_t)wanted.seconds * 1000000000u;
    if (wanted.rate) asking = false;
    else ask_everywhere();
    ask_until(now, from);
    memset(&tally, 0, sizeof tally);
    from = now_ns();
    now = ask_until(now, until);
    const Latencies *latencies = &tally.latencies;
    if (!latencies->count) quit(1, "no answer in %ld s", wanted.seconds);
    double took = (double)(now - from) / 1e9;
    printf("{\"mode\":\"%s\",\"header\":\"%s\",\"connections\":%ld,\"depth\":%ld,\"seconds\":%.3f,\"answers\":%llu,"
           "\"answers_per_second\":%.0f,\"bytes_per_second\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,"
           "\"max_us\":%.1f,\"oldest_unanswered_us\":%.1f,\"failed\":%llu}\n",
           kinds[questions.kind].name, questions.native ? "native" : "json", wanted.connections, wanted.depth, took,
           (unsigned long long)latencies->count, (double)latencies->count / took, (double)tally.bytes / took,
           percentile_us(latencies, .5), percentile_us(latencies, .99), percentile_us(latencies, .999),
           (double)latencies->largest_ns / 1e3, oldest_question_us(now), (unsigned long long)tally.failed);
    return 0;
}

static void greet_everywhere(void) {
    asking = false;
    ask_everywhere();
    while (tally.latencies.count < (uint64_t)wanted.connections) wait_and_step(-1);
}

/* A connection that the server closes while it is held makes the run a failure. */
static int hold(void) {
    wanted.connections = wanted.idle, wanted.depth = 1;
    connect_all();
    if (wanted.greet) greet_everywhere();
    printf("{\"idle\":%ld}\n", wanted.idle);
    fflush(stdout);
    alarm(0);
    uint64_t now, until = now_ns() + (uint64_t)wanted.seconds * 1000000000u;
    struct pollfd either[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = epoll, .events = POLLIN}};
    while ((now = now_ns()) < until) {
        int count = poll(either, 2, (int)((until - now) / 1000000 + 1));
        if (count < 0 && errno != EINTR) quit(1, "poll: %s", strerror(errno));
        if (count <= 0) continue;
        char ignored[4096];
        if (either[1].revents) wait_and_step(0);
        if (either[0].revents && read(STDIN_FILENO, ignored, sizeof ignored) <= 0) break;
    }
    return 0;
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"mode", required_argument, NULL, 'm'},
                                            {"header", required_argument, NULL, 'H'},
                                            {"connections", required_argument, NULL, 'c'},
                                            {"depth", required_argument, NULL, 'd'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"warmup", required_argument, NULL, 'w'},
                                            {"topics", required_argument, NULL, 't'},
                                            {"topic", required_argument, NULL, 'T'},
                                            {"brokers", required_argument, NULL, 'b'},
                                            {"cluster", required_argument, NULL, 'C'},
                                            {"broker", required_argument, NULL, 'B'},
                                            {"addr", required_argument, NULL, 'A'},
                                            {"broker-id", required_argument, NULL, 'I'},
                                            {"data-version", required_argument, NULL, 'V'},
                                            {"rate", required_argument, NULL, 'r'},
                                            {"own", no_argument, NULL, 'o'},
                                            {"idle", required_argument, NULL, 'i'},
                                            {"greet", no_argument, NULL, 'g'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;
    program = "load";
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) switch (option) {
            case 'p': wanted.port = whole_number("port", optarg, 1, 65535); break;
            case 'm': questions.kind = kind_named(optarg); break;
            case 'H': questions.native = is_native(optarg); break;
            case 'c': wanted.connections = whole_number("connections", optarg, 1, CONNECTION_LIMIT); break;
            case 'd': wanted.depth = whole_number("depth", optarg, 1, DEPTH_LIMIT); break;
            case 's': wanted.seconds = whole_number("seconds", optarg, 1, 600); break;
            case 'w': wanted.warmup = whole_number("warmup", optarg, 0, 60); break;
            case 'r': wanted.rate = whole_number("rate", optarg, 1, 1000000); break;
            case 'o': wanted.own = true; break;
            case 't': questions.topics = whole_number("topics", optarg, 1, 1000000); break;
            case 'T': questions.topic = pattern("topic", optarg); break;
            case 'b': questions.brokers = whole_number("brokers", optarg, 1, 1000000); break;
            case 'C': questions.cluster = pattern("cluster", optarg); break;
            case 'B': questions.broker = pattern("broker", optarg); break;
            case 'A': questions.addr = pattern("addr", optarg); break;
            case 'I': questions.broker_id = whole_number("broker-id", optarg, -1, INT32_MAX); break;
            case 'V': read_data_version(optarg); break;
            case 'i': wanted.idle = whole_number("idle", optarg, 1, CONNECTION_LIMIT); break;
            case 'g': wanted.greet = true; break;
            case 'h': fputs(usage, stdout); return 0;
            default: fputs("try --help\n", stderr); return 2;
        }
    if (optind < argc) quit(2, "%s: not an option; try --help", argv[optind]);
    if (!wanted.port) quit(2, "--port is missing; try --help");
    if (wanted.greet && !wanted.idle) quit(2, "--greet goes with --idle");
    if (wanted.rate && wanted.depth > 1) quit(2, "--rate and --depth do not go together");
    if (wanted.seconds < 0) wanted.seconds = wanted.idle ? 600 : 3;

    end_after(GRACE_SECONDS + wanted.warmup + (wanted.idle ? 0 : wanted.seconds));
    write_questions();
    stage = allocated(malloc((size_t)wanted.depth * largest_question()));
    return wanted.idle ? hold() : measure();
}
