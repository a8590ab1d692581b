// Attention of a batch over the slots of one layer's pool.
//
// A job is a stretch of context and the queries that see it: what rows share is one job for all of them. Jobs are
// cut into pieces of some queries and some context, each leaves a partial result, and results of a query are merged
// by their log-sum-exp (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Juravsky et al.,
// "Hydragen", 2024). How jobs are cut doesn't depend on the number of threads, so that neither do results.
#pragma once
#include "product.h"
#include <algorithm>
#include <cmath>
#include <vector>

// Slots `context[0:length]`, seen by `count` tokens of the batch. With `causal` the last `count` of the slots are
// those of the tokens themselves, and a token sees up to its own.
struct Job {
    int64_t context, length;  // a place in Plan::slots, and how many
    int64_t tokens, count;    // a place in Plan::tokens, and how many
    int64_t causal;
};

struct Piece {
    int64_t context, length, tokens, count;
    int64_t visible;  // slots of `length` that the first token sees, one more each next; at least length: all see all
    int64_t partial;  // where its first result goes; -1: it is the only one of its tokens
    int64_t cost;
};

constexpr int64_t KEYS = 64;        // context that is scored at once
constexpr int64_t QUERIES = 96;     // rows of queries of a piece, about
constexpr int64_t NARROW = 256;     // context of a piece with few queries
constexpr int64_t WIDE = 1024;      // and with many
constexpr int64_t FEW = 6;          // rows of queries from which on keys are transposed

struct Heads {
    int64_t heads, kv_heads, size;
    int64_t group() const { return heads / kv_heads; }
    int64_t queries() const { return heads * size; }
    int64_t width() const { return (heads + 2 * kv_heads) * size; }
};

// Pieces of all jobs, once per batch.
struct Cuts {
    std::vector<Piece> pieces;
    std::vector<int64_t> first;     // per token, where its partial results begin in `places`
    std::vector<int64_t> places;    // rows of partial results, token by token
    std::vector<int64_t> merged;    // tokens that have more than one
    int64_t partials = 0;

    Cuts(const Heads &heads, const Job *jobs, int64_t count, const int64_t *tokens, int64_t total) {
        int64_t block = std::max<int64_t>(1, QUERIES / heads.group());
        std::vector<int64_t> parts(total, 0);
        for (int64_t j = 0; j < count; j++) {
            const Job &job = jobs[j];
            for (int64_t from = 0; from < job.count; from += block) {
                int64_t many = std::min(block, job.count - from);
                int64_t seen = job.causal ? job.length - job.count + from + many : job.length;
                int64_t visible = job.causal ? job.length - job.count + from + 1 : job.length;
                int64_t step = many * heads.group() > 2 * FEW ? WIDE : NARROW;
                // No short rest: a piece is up to half as int64_t again.
                int64_t steps = std::max<int64_t>(1, (seen + step / 2) / step);
                for (int64_t s = 0; s < steps; s++) {
                    int64_t begin = s * seen / steps, end = (s + 1) * seen / steps;
                    // Of a stretch that ends before a block's first token everything is seen.
                    pieces.push_back({job.context + begin, end - begin, job.tokens + from, many, visible - begin, -1,
                                      (end - begin) * (many * heads.group() + 4)});
                    for (int64_t i = 0; i < many; i++) parts[tokens[job.tokens + from + i]]++;
                }
            }
        }
        first.assign(total + 1, 0);
        for (int64_t t = 0; t < total; t++) {
            first[t + 1] = first[t] + (parts[t] > 1 ? parts[t] : 0);
            if (parts[t] > 1) merged.push_back(t);
        }
        places.resize(first[total]);
        std::vector<int64_t> filled(total, 0);
        for (Piece &piece : pieces) {
            bool partial = false;
            for (int64_t i = 0; i < piece.count; i++) partial |= parts[tokens[piece.tokens + i]] > 1;
            if (!partial) continue;
            piece.partial = partials;
            for (int64_t i = 0; i < piece.count; i++) {
                int64_t token = tokens[piece.tokens + i];
                if (parts[token] > 1) places[first[token] + filled[token]++] = partials + i;
            }
            partials += piece.count;
        }
        std::stable_sort(pieces.begin(), pieces.end(), [](const Piece &a, const Piece &b) { return a.cost > b.cost; });
    }
};

// What one thread needs for a piece.
struct Desk {
    std::vector<float> queries, scores, keys, found, highest, total;
    void fit(int64_t rows, int64_t size) {
        if ((int64_t)queries.size() >= rows * size && (int64_t)highest.size() >= rows) return;
        queries.resize(rows * size);
        scores.resize(rows * KEYS);
        keys.resize(KEYS * size);
        found.resize(rows * size);
        highest.resize(rows);
        total.resize(rows);
    }
};

// q [rows, size] against keys at `k[0..n)`, one after the other -> scores [rows, KEYS].
static void score_few(const float *q, int64_t rows, const float *const *k, int64_t n, int64_t size, float *scores) {
    for (int64_t j = 0; j < n; j += LANES)
        for (int64_t row = 0; row < rows; row++) {
            vf products[LANES];
            for (int i = 0; i < LANES; i++) products[i] = vf{};
            const float *at = q + row * size;
            for (int64_t d = 0; d < size; d += LANES) {
                vf query = load(at + d);
                // Past the end the last key stands in; its scores are not read.
                for (int i = 0; i < LANES; i++) products[i] += query * load(k[j + i] + d);
            }
            store(scores + row * KEYS + j, sums(products));
        }
}

// Values at `v[0..n)` weighted by p [M, KEYS]; columns [0, LANES * V) added to out [M, size].
template <int M, int V> static void weigh(const float *p, const float *const *v, int64_t n, int64_t column, int64_t size, float *out) {
    vf sums[M][V];
    for (int m = 0; m < M; m++)
        for (int c = 0; c < V; c++) sums[m][c] = load(out + m * size + column + c * LANES);
    for (int64_t j = 0; j < n; j++) {
        vf value[V];
        for (int c = 0; c < V; c++) value[c] = load(v[j] + column + c * LANES);
        for (int m = 0; m < M; m++) {
            vf share = splat(p[m * KEYS + j]);
            for (int c = 0; c < V; c++) sums[m][c] += share * value[c];
        }
    }
    for (int m = 0; m < M; m++)
        for (int c = 0; c < V; c++) store(out + m * size + column + c * LANES, sums[m][c]);
}

template <int M> static void weigh_all(const float *p, const float *const *v, int64_t n, int64_t size, float *out) {
    int64_t column = 0;
    for (; column + 2 * LANES <= size; column += 2 * LANES) weigh<M, 2>(p, v, n, column, size, out);
    for (; column < size; column += LANES) weigh<M, 1>(p, v, n, column, size, out);
}

using Weigh = void (*)(const float *, const float *const *, int64_t, int64_t, float *);
template <size_t... I> static Weigh weigh_of(int rows, std::index_sequence<I...>) {
    static constexpr Weigh all[] = {weigh_all<(int)I + 1>...};
    return all[rows - 1];
}

// Keys at `k[0..n)` side by side, as panels of 32 -> [2, size, PANEL]. What is beyond n is zero.
static void turn_keys(const float *const *k, int64_t n, int64_t size, float *panels) {
    for (int64_t j = 0; j < KEYS; j += LANES) {
        float *to = panels + j / PANEL * size * PANEL + j % PANEL;
        for (int64_t d = 0; d < size; d += LANES) {
            vf rows[LANES];
            for (int i = 0; i < LANES; i++) rows[i] = j + i < n ? load(k[j + i] + d) : vf{};
            transpose(rows);
            for (int i = 0; i < LANES; i++) store(to + (d + i) * PANEL, rows[i]);
        }
    }
}

// All rows against KEYS keys -> scores [rows, KEYS].
static void score_many(const float *q, int64_t rows, int64_t size, const float *panels, float *scores) {
    alignas(64) float out[TILE * PANEL];
    Tiling tiling(rows);
    for (int64_t i = 0; i < tiling.tiles; i++) {
        int64_t from = tiling.start(i), to = tiling.start(i + 1);
        for (int64_t half = 0; half < KEYS / PANEL; half++) {
            const float *panel = panels + half * size * PANEL;
            tile_of<float>((int)(to - from))(q + from * size, size, panel, size, Ahead(panel, 0, size, 0, 1), out);
            for (int64_t row = from; row < to; row++)
                std::memcpy(scores + row * KEYS + half * PANEL, out + (row - from) * PANEL, PANEL * sizeof(float));
        }
    }
}

// Turn scores of a row into weights relative to the highest score so far; what was found before is scaled to it.
static void settle(float *scores, int64_t seen, float *found, int64_t size, float &highest, float &total) {
    for (int64_t j = seen; j < KEYS; j++) scores[j] = -INFINITY;
    vf top = splat(highest);
    for (int64_t j = 0; j < KEYS; j += LANES) {
        vf s = load(scores + j);
        top = s > top ? s : top;
    }
    float now = largest(top);
    vf added{};
    for (int64_t j = 0; j < KEYS; j += LANES) {
        vf share = exp_negative(load(scores + j) - splat(now));
        store(scores + j, share);
        added += share;
    }
    float scale = highest == -INFINITY ? 0.0f : std::exp(highest - now);
    if (scale != 1.0f)
        for (int64_t d = 0; d < size; d += LANES) store(found + d, load(found + d) * scale);
    total = total * scale + sum(added);
    highest = now;
}

// Ask for a key or a value that will soon be read: slots lie anywhere, so the processor can't foresee them.
static inline void fetch(const float *p, int64_t size) {
    for (int64_t d = 0; d < size; d += LINE / (int64_t)sizeof(float)) __builtin_prefetch(p + d);
}

struct Attention {
    const Heads &heads;
    const float *qkv;          // [tokens, heads + 2 * kv_heads, size]
    const float *pool;         // [slots, 2 * kv_heads, size]
    const int64_t *slots, *tokens;
    const Cuts &cuts;
    float *out;                // [tokens, heads, size]
    float *partial;            // [partials, heads, size]
    float *weight;             // [partials, heads]: log-sum-exp of each

    // One piece for one head of keys and values.
    void attend(const Piece &piece, int64_t kv_head, Desk &desk) const {
        int64_t size = heads.size, group = heads.group(), rows = piece.count * group;
        desk.fit(rows, size);
        float *q = desk.queries.data(), *found = desk.found.data(), *scores = desk.scores.data();
        float *highest = desk.highest.data(), *total = desk.total.data();
        float root = 1.0f / std::sqrt((float)size);
        for (int64_t i = 0; i < piece.count; i++) {
            const float *from = qkv + tokens[piece.tokens + i] * heads.width() + kv_head * group * size;
            for (int64_t d = 0; d < group * size; d++) q[i * group * size + d] = from[d] * root;
        }
        std::fill_n(found, rows * size, 0.0f);
        std::fill_n(highest, rows, -INFINITY);
        std::fill_n(total, rows, 0.0f);
        const float *k[KEYS], *v[KEYS];
        int64_t stride = 2 * heads.kv_heads * size;
        for (int64_t begin = 0; begin < piece.length; begin += KEYS) {
            int64_t n = std::min(KEYS, piece.length - begin);
            // Rows before `from` see nothing from here on.
            int64_t from = std::max<int64_t>(0, begin - piece.visible + 1) * group;
            if (from >= rows) break;
            for (int64_t j = 0; j < n; j++) {
                k[j] = pool + slots[piece.context + begin + j] * stride + kv_head * size;
                v[j] = k[j] + heads.kv_heads * size;
                fetch(v[j], size);
                if (begin + KEYS + j < piece.length)
                    fetch(pool + slots[piece.context + begin + KEYS + j] * stride + kv_head * size, size);
            }
            for (int64_t j = n; j < KEYS; j++) k[j] = k[n - 1];
            if (rows - from <= FEW)
                score_few(q + from * size, rows - from, k, n, size, scores + from * KEYS);
            else {
                turn_keys(k, n, size, desk.keys.data());
                score_many(q + from * size, rows - from, size, desk.keys.data(), scores + from * KEYS);
            }
            for (int64_t row = from; row < rows; row++) {
                int64_t seen = std::min(n, piece.visible + row / group - begin);
                settle(scores + row * KEYS, seen, found + row * size, size, highest[row], total[row]);
            }
            Tiling tiling(rows - from);
            for (int64_t i = 0; i < tiling.tiles; i++) {
                int64_t one = from + tiling.start(i), end = from + tiling.start(i + 1);
                weigh_of((int)(end - one), std::make_index_sequence<TILE>())(scores + one * KEYS, v, n, size, found + one * size);
            }
        }
        for (int64_t row = 0; row < rows; row++) {
            int64_t place = row / group, head = kv_head * group + row % group, token = tokens[piece.tokens + place];
            bool alone = cuts.first[token] == cuts.first[token + 1];
            int64_t at = alone ? token : piece.partial + place;
            float *to = (alone ? out : partial) + (at * heads.heads + head) * size;
            float scale = total[row] > 0 ? 1.0f / total[row] : 0.0f;
            for (int64_t d = 0; d < size; d += LANES) store(to + d, load(found + row * size + d) * scale);
            if (!alone) weight[at * heads.heads + head] = total[row] > 0 ? highest[row] + std::log(total[row]) : -INFINITY;
        }
    }

    // What the pieces left of one token.
    void merge(int64_t token) const {
        for (int64_t head = 0; head < heads.heads; head++) {
            float top = -INFINITY, all = 0;
            for (int64_t i = cuts.first[token]; i < cuts.first[token + 1]; i++)
                top = std::max(top, weight[cuts.places[i] * heads.heads + head]);
            float *to = out + (token * heads.heads + head) * heads.size;
            std::fill_n(to, heads.size, 0.0f);
            for (int64_t i = cuts.first[token]; i < cuts.first[token + 1]; i++) {
                int64_t at = cuts.places[i] * heads.heads + head;
                float share = std::exp(weight[at] - top);
                all += share;
                const float *from = partial + at * heads.size;
                for (int64_t d = 0; d < heads.size; d += LANES) store(to + d, load(to + d) + load(from + d) * share);
            }
            for (int64_t d = 0; d < heads.size; d += LANES) store(to + d, load(to + d) * (1.0f / all));
        }
    }

    // All of it, with the barriers that end its phases.
    void run(const Member &member, Desk &desk) const {
        int64_t pieces = (int64_t)cuts.pieces.size() * heads.kv_heads;
        member.deal(pieces, [&](int64_t i) { attend(cuts.pieces[i / heads.kv_heads], i % heads.kv_heads, desk); });
        member.meet();
        if (cuts.merged.empty()) return;
        member.deal(cuts.merged.size(), [&](int64_t i) { merge(cuts.merged[i]); });
        member.meet();
    }
};
