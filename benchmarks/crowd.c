/* crowd: how long until everybody is connected and has an answer, at first and again after the server has gone?
 *
 * Each member has a connection of its own and one question, a frame of a file. Whoever is refused, is not answered well
 * or loses its connection comes again after a while, as brokers and clients do.
 * One thread: pin it to a core of its own.
 */
#include "frames.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <sys/stat.h>

enum {
    EVENTS = 256,
    MEMBER_LIMIT = 60000,
    CONNECTING_LIMIT = 1000, /* at a time: a backlog that overflows loses a second, and is no question here */
    LOOK_MS = 5,             /* how late a member may come again */
};

static const char usage[] =
    "usage: crowd --port P --frames FILE [options]\n"
    "\n"
    "Connects to the name server on 127.0.0.1:P, asks one frame of FILE on each connection, and holds all until standard\n"
    "input ends. Prints a line of JSON when all have been asked, and one when all have been answered with code 0, each\n"
    "time that this becomes so: at what time of the monotonic clock, and how often somebody had to come again.\n"
    "\n"
    "  --members N         connections, at most 60000; default: as many as FILE has frames, which are asked in turn\n"
    "  --again MS          after how long a member comes again, give or take half of it; default 1000\n"
    "  --seconds S         gives up after this time, at most 900; default 300\n"
    "\n"
    "Exit code 0, 1 when something fails, 2 for wrong options.\n";

enum state { AWAY, CONNECTING, ASKED, ANSWERED, STATES };

typedef struct {
    enum state state;
    int fd;
    uint64_t comes_ns; /* when it is away: until then */
    const uint8_t *question;
    uint32_t size;
    Inflow in;
    Outflow out;
} Member;

static struct {
    long port, members, again, seconds;
    const char *frames;
} wanted = {.again = 1000, .seconds = 300};

static Member *members;
static long in_state[STATES], again;
static uint64_t received;
static int epoll;

static void become(Member *member, enum state state) {
    in_state[member->state]--;
    in_state[member->state = state]++;
}

static void say(const char *what) {
    printf("{\"all\":\"%s\",\"at\":%.6f,\"again\":%ld}\n", what, (double)now_ns() / 1e9, again);
    fflush(stdout);
}

/* ---------------------------------------------------------------------------------------------------------- frames */

static void read_frames(void) {
    int fd = open(wanted.frames, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about)) quit(1, "%s: %s", wanted.frames, strerror(errno));
    size_t size = (size_t)about.st_size, got = 0, at = 0;
    uint8_t *text = allocated(malloc(size + 1));
    for (ssize_t part; got < size && (part = read(fd, text + got, size - got)) > 0;) got += (size_t)part;
    close(fd);
    long count = 0;
    for (at = 0; at + 4 <= got && at + 4 + read_u32(text + at) <= got; count++) at += 4 + read_u32(text + at);
    if (got < size || at < got || !count) quit(1, "%s: not a file of whole frames", wanted.frames);
    if (!wanted.members) wanted.members = count;
    if (wanted.members > MEMBER_LIMIT) quit(1, "%ld members, at most %d", wanted.members, MEMBER_LIMIT);
    members = allocated(calloc((size_t)wanted.members, sizeof *members));
    in_state[AWAY] = wanted.members;
    at = 0;
    for (long i = 0; i < wanted.members; i++) {
        if (at == size) at = 0;
        members[i].question = text + at;
        members[i].size = 4 + read_u32(text + at);
        at += members[i].size;
    }
}

/* ----------------------------------------------------------------------------------------------- coming and leaving */

static void leave(Member *member) {
    close(member->fd);
    member->in.held = member->in.body_left = 0;
    member->out.sent = member->out.size = 0;
    member->comes_ns = now_ns() + (uint64_t)(wanted.again * (500 + rand() % 1000)) * 1000;
    become(member, AWAY);
    again++;
}

static void come(Member *member) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)wanted.port)};
    int one = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    member->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (member->fd < 0) quit(1, "socket: %s", strerror(errno));
    setsockopt(member->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    become(member, CONNECTING);
    if (connect(member->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) leave(member);
    else watch(epoll, EPOLL_CTL_ADD, member->fd, member, EPOLLIN | EPOLLOUT);
}

static void come_who_are_due(void) {
    static long turn;
    uint64_t now = now_ns();
    for (long i = 0; i < wanted.members && in_state[CONNECTING] < CONNECTING_LIMIT; i++) {
        Member *member = &members[turn++ % wanted.members];
        if (member->state == AWAY && member->comes_ns <= now) come(member);
    }
}

static void answered(void *whose, const Head *head) {
    Member *member = whose;
    if (member->state == ASKED && head->code == 0) become(member, ANSWERED);
}

static void step(Member *member, uint32_t events) {
    const char *wrong = NULL;
    if (member->state == CONNECTING) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(member->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error || events & EPOLLHUP) {
            leave(member);
            return;
        }
        become(member, ASKED);
        wrong = send_or_keep(member->fd, &member->out, member->question, member->size);
    } else if (events & EPOLLOUT) wrong = send_kept(member->fd, &member->out);
    if (!wrong && events & EPOLLOUT && !is_waiting(&member->out))
        watch(epoll, EPOLL_CTL_MOD, member->fd, member, EPOLLIN);
    bool was_asked = member->state == ASKED;
    if (!wrong && events & ~(uint32_t)EPOLLOUT) {
        uint64_t before = received;
        wrong = receive(member->fd, &member->in, &received, answered, member);
        /* a whole answer, and not a good one: "not ready", for example */
        bool is_whole = received > before && !member->in.held && !member->in.body_left;
        if (!wrong && was_asked && is_whole && member->state == ASKED) wrong = "refused";
    }
    if (wrong) leave(member);
}

/* ------------------------------------------------------------------------------------------------------------ whole */

static void go_on(void) {
    struct epoll_event ready[EVENTS];
    bool all_asked = false, all_answered = false;
    for (;;) {
        come_who_are_due();
        int count = epoll_wait(epoll, ready, EVENTS, LOOK_MS);
        for (int i = 0; i < count; i++) {
            if (!ready[i].data.ptr) return; /* standard input has ended */
            step(ready[i].data.ptr, ready[i].events);
        }
        bool now_asked = in_state[ASKED] + in_state[ANSWERED] == wanted.members;
        if (now_asked && !all_asked) say("asked");
        bool now_answered = in_state[ANSWERED] == wanted.members;
        if (now_answered && !all_answered) say("answered");
        all_asked = now_asked, all_answered = now_answered;
    }
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"frames", required_argument, NULL, 'f'},
                                            {"members", required_argument, NULL, 'm'},
                                            {"again", required_argument, NULL, 'a'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;
    program = "crowd";
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) switch (option) {
            case 'p': wanted.port = whole_number("port", optarg, 1, 65535); break;
            case 'f': wanted.frames = optarg; break;
            case 'm': wanted.members = whole_number("members", optarg, 1, MEMBER_LIMIT); break;
            case 'a': wanted.again = whole_number("again", optarg, 1, 60000); break;
            case 's': wanted.seconds = whole_number("seconds", optarg, 1, 900); break;
            case 'h': fputs(usage, stdout); return 0;
            default: fputs("try --help\n", stderr); return 2;
        }
    if (optind < argc) quit(2, "%s: not an option; try --help", argv[optind]);
    if (!wanted.port || !wanted.frames) quit(2, "--port or --frames is missing; try --help");

    end_after(wanted.seconds);
    read_frames();
    if (descriptor_limit() < (unsigned long long)wanted.members + 16)
        quit(1, "%ld members: %llu descriptors allowed (ulimit -Hn)", wanted.members, descriptor_limit());
    epoll = epoll_create1(EPOLL_CLOEXEC);
    watch(epoll, EPOLL_CTL_ADD, STDIN_FILENO, NULL, EPOLLIN);
    go_on();
    return 0;
}
