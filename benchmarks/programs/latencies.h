/* How late are most responses, and how late are the last? Counted in buckets, so that memory and cost do not grow. */
#ifndef LATENCIES_H
#define LATENCIES_H

#include <stddef.h>
#include <stdint.h>

/* Buckets of 1 ns up to 256 ns, then 128 to each doubling: none is wider than 0.8 % of what is in it. */
enum { BUCKETS = 7424 };

typedef struct {
    uint64_t count, largest_ns;
    uint64_t buckets[BUCKETS];
} Latencies;

static inline size_t bucket_of(uint64_t ns) {
    if (ns < 256) return ns;
    int shift = 56 - __builtin_clzll(ns);
    return ((size_t)shift << 7) + (ns >> shift);
}

static inline uint64_t largest_in(size_t bucket) {
    if (bucket < 256) return bucket;
    int shift = (int)(bucket >> 7) - 1;
    return ((bucket - ((size_t)shift << 7) + 1) << shift) - 1;
}

static inline void add_latency(Latencies *all, uint64_t ns) {
    all->count++;
    all->buckets[bucket_of(ns)]++;
    if (ns > all->largest_ns) all->largest_ns = ns;
}

/* The upper edge of the bucket, in microseconds: a figure that no rounding makes better. */
static inline double percentile_us(const Latencies *all, double share) {
    uint64_t seen = 0, enough = (uint64_t)((double)all->count * share);
    size_t bucket = 0;
    while (bucket < BUCKETS - 1 && (seen += all->buckets[bucket]) <= enough && seen < all->count) bucket++;
    uint64_t ns = largest_in(bucket);
    return (double)(ns < all->largest_ns ? ns : all->largest_ns) / 1e3;
}

#endif
