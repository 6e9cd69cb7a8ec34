/* How do frames travel over a non-blocking socket? What the programs have in common.
 *
 *     u32 length | u8 serialize type | u24 header size | header | body        length = 4 + header size + body size
 *
 * Of a header only the code and the opaque are read, of a body nothing: it is counted and dropped as it arrives, so a
 * frame may be of any size and come in any pieces.
 */
#ifndef FRAMES_H
#define FRAMES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem, accept4 */
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
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
    TYPE_JSON = 0,
    TYPE_NATIVE = 77,
    PREFIX = 8,                /* length, type and header size */
    HEADER_LIMIT = 8192,       /* no header of a benchmark comes near it */
    READ_AT_ONCE = 256 * 1024, /* a read that fills this is rare at any depth */
    ANSWER_FLAG = 1,
    VERSION = 479, /* what the project sends */
    CONNECTION_LIMIT = 60000,
};

static const char *program; /* for messages */

__attribute__((noreturn, format(printf, 2, 3))) static inline void quit(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(status);
}

static inline void took_too_long(int signal_number) {
    static const char message[] = ": not done in time\n";
    (void)signal_number;
    /* a signal handler may not print */
    ssize_t ignored = write(STDERR_FILENO, program, strlen(program));
    ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(1);
}

/* A program that hangs ends with exit 1 after this time; alarm(0) cancels that. */
static inline void end_after(long seconds) {
    signal(SIGALRM, took_too_long);
    alarm((unsigned)seconds);
}

/* The option's value, or exit 2 with its name, value and range. */
static inline long whole_number(const char *option, const char *text, long least, long most) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        quit(2, "--%s %s: not a whole number from %ld to %ld", option, text, least, most);
    return value;
}

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Raises the limit of open descriptors as far as it goes; ends when so many connections are not allowed. */
static inline void allow_connections(long count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) quit(1, "getrlimit: %s", strerror(errno));
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit)) quit(1, "setrlimit: %s", strerror(errno));
    if (limit.rlim_cur < (unsigned long long)count + 16)
        quit(1, "%ld connections: %llu descriptors allowed (ulimit -Hn)", count, (unsigned long long)limit.rlim_cur);
}

static inline struct sockaddr_in loopback(long port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline int tcp_socket(int flags) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0) quit(1, "socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* A connection that does not block from now on; ends when it is not accepted in so many seconds. */
static inline int connected(long port, long seconds) {
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

static inline void *allocated(void *memory) {
    if (!memory) quit(1, "out of memory");
    return memory;
}

static inline void watch(int epoll, int operation, int fd, void *whose, uint32_t events) {
    struct epoll_event wanted = {.events = events, .data.ptr = whose};
    if (epoll_ctl(epoll, operation, fd, &wanted)) quit(1, "epoll_ctl: %s", strerror(errno));
}

static inline uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline void write_u32(uint8_t *at, uint32_t value) {
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
static inline bool json_integer(const uint8_t *header, size_t size, const char *member, int64_t *value) {
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
static inline const uint8_t *msgpack_integer(const uint8_t *at, const uint8_t *end, int64_t *value) {
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
static inline const char *read_header(const uint8_t *header, size_t size, Head *head) {
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
static inline const char *receive(int fd, Inflow *in, uint64_t *bytes, OnFrame *on_frame, void *whose) {
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

static inline bool is_waiting(const Outflow *out) { return out->sent < out->size; }

/* How many bytes the socket took; exactly 0 when it is full, -1 when it is broken. */
static inline ssize_t offer(int fd, const uint8_t *bytes, size_t size) {
    ssize_t took = send(fd, bytes, size, MSG_NOSIGNAL);
    return took < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : took;
}

/* Sends, behind what is waiting already; what does not go out now waits. NULL, or why the socket is broken. */
static inline const char *send_or_keep(int fd, Outflow *out, const uint8_t *bytes, size_t size) {
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
static inline const char *send_kept(int fd, Outflow *out) {
    ssize_t took = offer(fd, out->bytes + out->sent, out->size - out->sent);
    if (took < 0) return strerror(errno);
    out->sent += (size_t)took;
    return NULL;
}

#endif
