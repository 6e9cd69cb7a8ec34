/* crowd: how long until all members of a crowd are connected and have their responses, and again after a restart?
 *
 * Each member has a connection of its own and one request or several, which it sends one after the other. A member that
 * is refused, waits for too long or loses its connection connects again after a while, as brokers and clients do.
 * One thread: pin it to a core of its own.
 */
#include "frames.h"

#include <getopt.h>
#include <sys/stat.h>

enum {
    EVENTS = 256,
    LOOK_MS = 5, /* how late a member may connect again */
};

static const char usage[] =
    "usage: crowd --port P --frames FILE [options]\n"
    "\n"
    "Connects to the name server on 127.0.0.1:P, sends frames of FILE on each connection, and holds all until standard\n"
    "input ends. Prints a line of JSON when all have begun to connect, when all have sent their last request, and when all\n"
    "have every response with code 0, each time that this becomes so: the time by the monotonic clock, and how often\n"
    "members had to connect again until then.\n"
    "\n"
    "  --members N         connections, at most 60000; default: as many as FILE has frames, which are used in turn\n"
    "  --each N            requests of each member, from its number on; default 1\n"
    "  --at-once N         members that connect at a time, default 1000: a backlog that overflows loses a second\n"
    "  --patience MS       how long a member waits for a response, default 0: for ever\n"
    "  --again MS          after how long a member connects again, give or take half of it; default 1000\n"
    "  --seconds S         gives up after this time, at most 900; default 300\n"
    "\n"
    "Exit code 0, 1 when something fails, 2 for wrong options.\n";

/* AWAY -> CONNECTING -> WAITING (for a response, then for the next one) -> DONE; a failure leads from each to AWAY. */
enum state { AWAY, CONNECTING, WAITING, DONE, STATES };

typedef struct {
    enum state state;
    int fd;
    uint64_t until_ns; /* AWAY: connects then; CONNECTING, WAITING: gives up then, unless it is 0 */
    long first, sent, got; /* number of its first frame; requests that were sent, and that have a response */
    Inflow in;
    Outflow out;
} Member;

static struct {
    long port, members, each, at_once, patience, again, seconds;
    const char *frames;
} wanted = {.each = 1, .at_once = 1000, .again = 1000, .seconds = 300};

static const uint8_t **frames;
static long frame_count;
static Member *members;
static long in_state[STATES], on_last, begun, again; /* members that sent their last request, that ever connected */
static uint64_t received;
static int epoll;

static void become(Member *member, enum state state) {
    in_state[member->state]--;
    in_state[member->state = state]++;
}

static void report(const char *what) {
    printf("{\"all\":\"%s\",\"at\":%.6f,\"again\":%ld}\n", what, (double)now_ns() / 1e9, again);
    fflush(stdout);
}

static void read_frames(void) {
    int fd = open(wanted.frames, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about)) quit(1, "%s: %s", wanted.frames, strerror(errno));
    size_t size = (size_t)about.st_size, got = 0, at;
    uint8_t *text = allocated(malloc(size + 1));
    for (ssize_t part; got < size && (part = read(fd, text + got, size - got)) > 0;) got += (size_t)part;
    close(fd);
    for (at = 0; at + 4 <= got && at + 4 + read_u32(text + at) <= got; frame_count++) at += 4 + read_u32(text + at);
    if (got < size || at < got || !frame_count) quit(1, "%s: not a file of whole frames", wanted.frames);
    frames = allocated(calloc((size_t)frame_count, sizeof *frames));
    for (long i = at = 0; i < frame_count; i++, at += 4 + read_u32(text + at)) frames[i] = text + at;
    if (!wanted.members) wanted.members = frame_count;
    if (wanted.members > CONNECTION_LIMIT) quit(1, "%ld members, at most %d", wanted.members, CONNECTION_LIMIT);
}

/* ------------------------------------------------------------------------------------------- connecting and leaving */

static void wait_for_more(Member *member) {
    member->until_ns = wanted.patience ? now_ns() + (uint64_t)wanted.patience * 1000000 : 0;
}

static void leave(Member *member) {
    close(member->fd);
    if (member->state == WAITING && member->sent == wanted.each) on_last--;
    member->in.held = member->in.body_left = 0;
    member->out.sent = member->out.size = 0;
    member->until_ns = now_ns() + (uint64_t)(wanted.again * (500 + rand() % 1000)) * 1000;
    become(member, AWAY);
    again++;
}

static void come(Member *member) {
    struct sockaddr_in to = loopback(wanted.port);
    member->fd = tcp_socket(SOCK_NONBLOCK);
    /* requests that have their responses are not sent again, unless all have: then the server was restarted */
    if (member->got == wanted.each) member->got = 0;
    member->sent = member->got;
    become(member, CONNECTING);
    wait_for_more(member);
    begun++;
    if (connect(member->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) leave(member);
    else watch(epoll, EPOLL_CTL_ADD, member->fd, member, EPOLLIN | EPOLLOUT);
}

static void look_at_deadlines(void) {
    static long turn;
    uint64_t now = now_ns();
    for (long i = 0; i < wanted.members; i++) {
        Member *member = &members[turn++ % wanted.members];
        if (member->state == AWAY && member->until_ns <= now && in_state[CONNECTING] < wanted.at_once) come(member);
        else if ((member->state == CONNECTING || member->state == WAITING) && member->until_ns && member->until_ns <= now)
            leave(member);
    }
}

/* -------------------------------------------------------------------------------------------- requests and responses */

static const char *send_next(Member *member) {
    const uint8_t *frame = frames[(member->first + member->sent++) % frame_count];
    if (member->sent == wanted.each) on_last++;
    wait_for_more(member);
    return send_or_keep(member->fd, &member->out, frame, 4 + read_u32(frame));
}

static bool is_refused; /* the response of this step had another code than 0 */

static void answered(void *whose, const Head *head) {
    Member *member = whose;
    if (member->state != WAITING) return;
    is_refused = head->code != 0;
    member->got += !is_refused;
}

static const char *take_response(Member *member) {
    long before = member->got;
    is_refused = false;
    const char *wrong = receive(member->fd, &member->in, &received, answered, member);
    if (wrong || is_refused) return wrong ? wrong : "refused";
    if (member->state != WAITING || member->got == before) return NULL;
    if (member->got < wanted.each) return send_next(member);
    on_last--;
    member->until_ns = 0;
    become(member, DONE);
    return NULL;
}

static void step(Member *member, uint32_t events) {
    const char *wrong = NULL;
    if (member->state == CONNECTING) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(member->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (!error && events & EPOLLHUP) error = ECONNRESET;
        if (!error) become(member, WAITING);
        wrong = error ? strerror(error) : send_next(member);
    } else if (events & EPOLLOUT) wrong = send_kept(member->fd, &member->out);
    if (!wrong && events & EPOLLOUT && !is_waiting(&member->out))
        watch(epoll, EPOLL_CTL_MOD, member->fd, member, EPOLLIN);
    if (!wrong && events & ~(uint32_t)EPOLLOUT) wrong = take_response(member);
    if (!wrong && is_waiting(&member->out)) watch(epoll, EPOLL_CTL_MOD, member->fd, member, EPOLLIN | EPOLLOUT);
    if (wrong) leave(member);
}

static void go_on(void) {
    struct epoll_event ready[EVENTS];
    bool have_begun = false, all_sent = false, all_done = false;
    for (;;) {
        look_at_deadlines();
        int count = epoll_wait(epoll, ready, EVENTS, LOOK_MS);
        for (int i = 0; i < count; i++) {
            if (!ready[i].data.ptr) return; /* standard input has ended */
            step(ready[i].data.ptr, ready[i].events);
        }
        if (begun >= wanted.members && !have_begun) report("begun");
        bool now_sent = on_last + in_state[DONE] == wanted.members, now_done = in_state[DONE] == wanted.members;
        if (now_sent && !all_sent) report("sent");
        if (now_done && !all_done) report("answered");
        have_begun = begun >= wanted.members, all_sent = now_sent, all_done = now_done;
    }
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},     {"frames", required_argument, NULL, 'f'},
        {"members", required_argument, NULL, 'm'},  {"each", required_argument, NULL, 'e'},
        {"at-once", required_argument, NULL, 'o'},  {"patience", required_argument, NULL, 'w'},
        {"again", required_argument, NULL, 'a'},    {"seconds", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
    int option;
    program = "crowd";
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) switch (option) {
            case 'p': wanted.port = whole_number("port", optarg, 1, 65535); break;
            case 'f': wanted.frames = optarg; break;
            case 'm': wanted.members = whole_number("members", optarg, 1, CONNECTION_LIMIT); break;
            case 'e': wanted.each = whole_number("each", optarg, 1, 1000); break;
            case 'o': wanted.at_once = whole_number("at-once", optarg, 1, CONNECTION_LIMIT); break;
            case 'w': wanted.patience = whole_number("patience", optarg, 0, 900000); break;
            case 'a': wanted.again = whole_number("again", optarg, 0, 60000); break;
            case 's': wanted.seconds = whole_number("seconds", optarg, 1, 900); break;
            case 'h': fputs(usage, stdout); return 0;
            default: fputs("try --help\n", stderr); return 2;
        }
    if (optind < argc) quit(2, "%s: not an option; try --help", argv[optind]);
    if (!wanted.port || !wanted.frames) quit(2, "--port or --frames is missing; try --help");

    end_after(wanted.seconds);
    read_frames();
    allow_connections(wanted.members);
    members = allocated(calloc((size_t)wanted.members, sizeof *members));
    for (long i = 0; i < wanted.members; i++) members[i].first = i;
    in_state[AWAY] = wanted.members;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    watch(epoll, EPOLL_CTL_ADD, STDIN_FILENO, NULL, EPOLLIN);
    go_on();
    return 0;
}
