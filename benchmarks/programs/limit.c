/* limit: how fast can one thread respond to frames at all?
 *
 * The physical limit to compare a name server with: every request frame gets the same body at once. Nothing is looked
 * up, checked or encoded; what is left is the kernel's work, splitting frames and copying responses.
 */
#include "frames.h"

#include <getopt.h>

enum {
    EVENTS = 256,
    STAGE = 1 << 20, /* responses collected before they are sent: all those of one read, unless their bodies are large */
    HEADER_ROOM = 128,
    BODY_LIMIT = 16 * 1024 * 1024 - PREFIX - HEADER_ROOM,
};

static const char usage[] =
    "usage: limit [--port P] [--body BYTES] [--seconds S]\n"
    "\n"
    "Answers every request frame on 127.0.0.1:P with code 0 and a body of BYTES, in the header format of the request\n"
    "(JSON or native), and ends after S seconds at the latest. Prints one line of JSON when it listens: {\"port\":P}.\n"
    "\n"
    "  --port P       0 takes a free one (default 0)\n"
    "  --body BYTES   size of each response's body (default 1871)\n"
    "  --seconds S    how long it lives (default 60, at most 3600)\n"
    "\n"
    "Exit code 0 when the time is over, 1 when something fails, 2 for wrong options.\n";

/* One client. */
typedef struct {
    int fd;
    Inflow in;
    Outflow out; /* responses that the client has not read; no more requests are taken from it meanwhile */
    const char *broken;
} Client;

/* The responses of the current read, not yet sent. */
static uint8_t *stage;
static size_t staged, stage_room;

static uint8_t *body;
static size_t body_size;
static int epoll;

static void flush_stage(Client *client) {
    if (staged && !client->broken) client->broken = send_or_keep(client->fd, &client->out, stage, staged);
    staged = 0;
}

static size_t json_answer(uint8_t *at, uint32_t opaque) {
    static const char before[] = "{\"code\":0,\"flag\":1,\"language\":\"PYTHON\",\"opaque\":";
    static const char after[] = ",\"version\":479}";
    uint8_t digits[10], *start = at;
    int count = 0;
    do digits[count++] = (uint8_t)('0' + opaque % 10);
    while (opaque /= 10);
    memcpy(at, before, sizeof before - 1);
    at += sizeof before - 1;
    while (count) *at++ = digits[--count];
    memcpy(at, after, sizeof after - 1);
    return (size_t)(at - start) + sizeof after - 1;
}

static size_t native_answer(uint8_t *at, uint32_t opaque) {
    /* [0, opaque, 1, 479, nil, nil] */
    static const uint8_t before[] = {0x96, 0, 0xce};
    static const uint8_t after[] = {ANSWER_FLAG, 0xcd, VERSION >> 8, VERSION & 255, 0xc0, 0xc0};
    memcpy(at, before, sizeof before);
    write_u32(at + sizeof before, opaque);
    memcpy(at + sizeof before + 4, after, sizeof after);
    return sizeof before + 4 + sizeof after;
}

static void answer(void *whose, const Head *head) {
    Client *client = whose;
    if (staged + PREFIX + HEADER_ROOM + body_size > stage_room) flush_stage(client);
    uint8_t *at = stage + staged;
    uint32_t opaque = (uint32_t)head->opaque & INT32_MAX; /* no request has a negative one */
    size_t header = head->type == TYPE_NATIVE ? native_answer(at + PREFIX, opaque) : json_answer(at + PREFIX, opaque);
    write_u32(at, (uint32_t)(4 + header + body_size));
    write_u32(at + 4, (uint32_t)head->type << 24 | (uint32_t)header);
    memcpy(at + PREFIX + header, body, body_size);
    staged += PREFIX + header + body_size;
}

static void drop(Client *client) {
    close(client->fd);
    free(client->out.bytes);
    free(client);
}

/* One thing the client can do: take what waits for it, or else ask for more. */
static void serve(Client *client) {
    static uint64_t bytes;
    bool was_waiting = is_waiting(&client->out);
    if (was_waiting) {
        client->broken = send_kept(client->fd, &client->out);
    } else {
        const char *wrong = receive(client->fd, &client->in, &bytes, answer, client);
        flush_stage(client);
        if (wrong) client->broken = wrong;
    }
    if (client->broken) {
        drop(client);
        return;
    }
    bool waits = is_waiting(&client->out);
    if (waits != was_waiting) watch(epoll, EPOLL_CTL_MOD, client->fd, client, waits ? EPOLLOUT : EPOLLIN);
}

static void welcome(int listener) {
    int one = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        Client *client = allocated(calloc(1, sizeof *client));
        client->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        watch(epoll, EPOLL_CTL_ADD, fd, client, EPOLLIN);
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) quit(1, "accept: %s", strerror(errno));
}

static int listening(long port) {
    int one = 1, listener = tcp_socket(SOCK_NONBLOCK);
    struct sockaddr_in at = loopback(port);
    socklen_t size = sizeof at;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&at, &size))
        quit(1, "port %ld: %s", port, strerror(errno));
    printf("{\"port\":%d}\n", ntohs(at.sin_port));
    fflush(stdout);
    return listener;
}

static void time_is_over(int signal_number) {
    (void)signal_number;
    _exit(0);
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"body", required_argument, NULL, 'b'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    long port = 0, seconds = 60;
    int option;
    program = "limit";
    body_size = 1871;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) switch (option) {
            case 'p': port = whole_number("port", optarg, 0, 65535); break;
            case 'b': body_size = (size_t)whole_number("body", optarg, 0, BODY_LIMIT); break;
            case 's': seconds = whole_number("seconds", optarg, 1, 3600); break;
            case 'h': fputs(usage, stdout); return 0;
            default: fputs("try --help\n", stderr); return 2;
        }
    if (optind < argc) quit(2, "%s: not an option; try --help", argv[optind]);

    signal(SIGALRM, time_is_over);
    alarm((unsigned)seconds);
    allow_connections(0);
    body = allocated(malloc(body_size + 1));
    memset(body, 'x', body_size);
    stage_room = STAGE + PREFIX + HEADER_ROOM + body_size;
    stage = allocated(malloc(stage_room));
    epoll = epoll_create1(EPOLL_CLOEXEC);
    int listener = listening(port);
    watch(epoll, EPOLL_CTL_ADD, listener, NULL, EPOLLIN);
    for (;;) {
        struct epoll_event ready[EVENTS];
        int count = epoll_wait(epoll, ready, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (ready[i].data.ptr) serve(ready[i].data.ptr);
            else welcome(listener);
        }
    }
}
