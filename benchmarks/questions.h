/* What does a broker or a client ask a name server? The frames that load.c sends, made before the first is sent.
 *
 * A question's frame never changes but for its opaque: it is copied and the opaque written over. In JSON that takes
 * opaques which all have the same number of digits, so they begin at a billion.
 */
#ifndef QUESTIONS_H
#define QUESTIONS_H

#include "frames.h"

enum { FIRST_OPAQUE = 1000000000, OPAQUE_DIGITS = 10, NAME_LIMIT = 255, FIELDS = 4 };

enum kind { ROUTE, HEARTBEAT, DATA_VERSION, KINDS };

static const struct {
    const char *name;
    uint16_t code;
} kinds[KINDS] = {{"route", 105}, {"heartbeat", 904}, {"version", 322}};

/* What the options say. */
static struct {
    enum kind kind;
    bool native;
    long topics, brokers, broker_id;
    long long counter, timestamp;
    const char *topic, *cluster, *broker, *addr; /* patterns: each %d is the number */
} questions = {
    .topics = 1000,
    .topic = "TopicTest%d",
    .brokers = 1,
    .cluster = "DefaultCluster",
    .broker = "broker-%d",
    .addr = "127.0.0.1:%d",
    .counter = 1,
};

/* One frame in `text`. */
typedef struct {
    size_t at, opaque_at;
    uint32_t size;
} Question;

static Question *list;
static long list_size;

/* --------------------------------------------------------------------------------------------------------- options */

static enum kind kind_named(const char *name) {
    for (int kind = 0; kind < KINDS; kind++)
        if (!strcmp(name, kinds[kind].name)) return (enum kind)kind;
    quit(2, "--mode %s: not route, heartbeat or version", name);
}

static bool is_native(const char *header) {
    if (!strcmp(header, "native")) return true;
    if (strcmp(header, "json")) quit(2, "--header %s: not json or native", header);
    return false;
}

/* The pattern itself, when it can stand in JSON as it is and has no % but in %d. */
static const char *pattern(const char *option, const char *text) {
    for (const char *at = text; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\' || (*at == '%' && at[1] != 'd'))
            quit(2, "--%s %s: only printable ASCII without quotes and backslashes, and %% only in %%d", option, text);
    if (!*text) quit(2, "--%s is empty", option);
    return text;
}

static void read_data_version(const char *text) {
    int end = 0;
    if (sscanf(text, "%lld,%lld%n", &questions.counter, &questions.timestamp, &end) != 2 || text[end] ||
        questions.counter < 0 || questions.timestamp < 0)
        quit(2, "--data-version %s: not COUNTER,TIMESTAMP", text);
}

/* ------------------------------------------------------------------------------------------------------------ text */

static uint8_t *text;
static size_t text_size, text_room;

static void put(const void *bytes, size_t size) {
    if (text_size + size > text_room) {
        text_room = 2 * (text_size + size) + 4096;
        text = allocated(realloc(text, text_room));
    }
    memcpy(text + text_size, bytes, size);
    text_size += size;
}

static void put_text(const char *string) { put(string, strlen(string)); }

static void put_number(long long number) {
    char digits[24];
    put(digits, (size_t)snprintf(digits, sizeof digits, "%lld", number));
}

static void put_byte(unsigned byte) { put(&(uint8_t){(uint8_t)byte}, 1); }

/* A msgpack integer, as short as it can be: so every library writes it. */
static void put_msgpack_number(long long number) {
    if (number >= 0 && number < 128) {
        put_byte((unsigned)number);
        return;
    }
    bool is_negative = number < 0;
    int bytes = is_negative || number > 0xffffffff ? 8 : number > 0xffff ? 4 : number > 0xff ? 2 : 1;
    if (is_negative) put_byte(0xd3);
    else put_byte(bytes == 8 ? 0xcf : bytes == 4 ? 0xce : bytes == 2 ? 0xcd : 0xcc);
    for (int shift = 8 * bytes - 8; shift >= 0; shift -= 8) put_byte((unsigned)((uint64_t)number >> shift) & 255);
}

static void put_msgpack_string(const char *string) {
    size_t size = strlen(string);
    if (size < 32) put_byte(0xa0 | (unsigned)size);
    else put_byte(0xd9), put_byte((unsigned)size);
    put(string, size);
}

/* ---------------------------------------------------------------------------------------------------------- frames */

typedef struct {
    const char *name;
    char value[NAME_LIMIT + 1];
    bool is_number;
} Field;

static void expand(Field *field, const char *name, const char *from, long number) {
    size_t size = 0;
    field->name = name, field->is_number = false;
    for (; *from; from++) {
        char one[24] = {*from};
        if (*from == '%') snprintf(one, sizeof one, "%ld", number), from++;
        if (size + strlen(one) > NAME_LIMIT) quit(2, "%s of more than %d characters", name, NAME_LIMIT);
        memcpy(field->value + size, one, strlen(one));
        size += strlen(one);
    }
    field->value[size] = 0;
}

/* The ext fields of question `number`, in alphabetical order; how many. */
static int fields_of(Field *fields, long number) {
    if (questions.kind == ROUTE) return expand(&fields[0], "topic", questions.topic, number), 1;
    expand(&fields[0], "brokerAddr", questions.addr, number);
    fields[1] = (Field){.name = "brokerId", .is_number = true};
    snprintf(fields[1].value, sizeof fields[1].value, "%ld", questions.broker_id);
    expand(&fields[2], "brokerName", questions.broker, number);
    expand(&fields[3], "clusterName", questions.cluster, number);
    return 4;
}

/* Where the opaque is. */
static size_t put_json_header(const Field *fields, int count) {
    put_text("{\"code\":");
    put_number(kinds[questions.kind].code);
    put_text(",\"extFields\":{");
    for (int i = 0; i < count; i++) {
        put_text(i ? ",\"" : "\"");
        put_text(fields[i].name);
        put_text("\":\"");
        put_text(fields[i].value);
        put_text("\"");
    }
    put_text("},\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
    size_t opaque_at = text_size;
    put_number(FIRST_OPAQUE);
    put_text(",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    put_number(VERSION);
    put_text("}");
    return opaque_at;
}

/* [code, opaque, flag, version, remark, ext]; where the opaque is. */
static size_t put_native_header(const Field *fields, int count) {
    put_byte(0x96);
    put_msgpack_number(kinds[questions.kind].code);
    put_byte(0xce);
    size_t opaque_at = text_size;
    put("\0\0\0\0", 4);
    put_byte(0);
    put_msgpack_number(VERSION);
    put_byte(0xc0);
    put_byte(0x80 | (unsigned)count);
    for (int i = 0; i < count; i++) {
        put_msgpack_string(fields[i].name);
        if (fields[i].is_number) put_msgpack_number(atol(fields[i].value));
        else put_msgpack_string(fields[i].value);
    }
    return opaque_at;
}

static void put_data_version(void) {
    const struct {
        const char *json, *native;
        long long value;
    } members[] = {{"{\"counter\":", "counter", questions.counter},
                   {",\"stateVersion\":", "state_version", 0},
                   {",\"timestamp\":", "timestamp", questions.timestamp}};
    if (questions.native) put_byte(0x83);
    for (int i = 0; i < 3; i++) {
        if (questions.native) put_msgpack_string(members[i].native), put_msgpack_number(members[i].value);
        else put_text(members[i].json), put_number(members[i].value);
    }
    if (!questions.native) put_text("}");
}

static void write_question(Question *question, long number) {
    Field fields[FIELDS];
    int count = fields_of(fields, number);
    question->at = text_size;
    put("\0\0\0\0\0\0\0\0", PREFIX);
    question->opaque_at = (questions.native ? put_native_header : put_json_header)(fields, count) - question->at;
    uint32_t header = (uint32_t)(text_size - question->at) - PREFIX;
    if (questions.kind == DATA_VERSION) put_data_version();
    question->size = (uint32_t)(text_size - question->at);
    write_u32(text + question->at, question->size - 4);
    write_u32(text + question->at + 4, (uint32_t)(questions.native ? TYPE_NATIVE : TYPE_JSON) << 24 | header);
}

static void write_questions(void) {
    list_size = questions.kind == ROUTE ? questions.topics : questions.brokers;
    list = allocated(calloc((size_t)list_size, sizeof *list));
    for (long number = 0; number < list_size; number++) write_question(&list[number], number);
}

static size_t largest_question(void) {
    size_t largest = 0;
    for (long number = 0; number < list_size; number++)
        if (list[number].size > largest) largest = list[number].size;
    return largest;
}

/* Writes a question, by number; its size. */
static size_t put_question(uint8_t *to, long number, uint32_t opaque) {
    const Question *question = &list[number % list_size];
    memcpy(to, text + question->at, question->size);
    uint8_t *at = to + question->opaque_at;
    if (questions.native) write_u32(at, opaque);
    else
        for (int digit = OPAQUE_DIGITS; digit--; opaque /= 10) at[digit] = (uint8_t)('0' + opaque % 10);
    return question->size;
}

#endif
