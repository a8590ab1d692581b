// Products of a few to many rows of activations with packed weights.
//
// Weights lie in panels of 32 outputs, input by input, so that a panel is one stream of memory. A tile keeps the
// sums of up to TILE rows and a panel in registers (Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", 2008). Each sum is built in the order of the inputs whatever the number of rows: a row's result
// is the same to the bit whoever runs beside it.
#pragma once
#include "simd.h"
#include "team.h"
#include <vector>

#if LANES == 16
constexpr int TILE = 12;
#elif LANES == 8
constexpr int TILE = 6;
#else
constexpr int TILE = 8;
#endif

// Where the processor multiplies bfloat16 pairs, bfloat16 weights lie in pairs of inputs, and activations are rounded
// to bfloat16 as they enter a product: twice the speed of float32. Sums are float32 all the same.
#if LANES == 16 && defined(__AVX512BF16__)
#define PAIRED 1
#else
#define PAIRED 0
#endif

constexpr int64_t LINE = 64;

// Memory that is asked for while a tile is computed, so that it is there when it is needed; what the processor fetches
// ahead by itself ends at each page. The only tile of a panel fetches its own stream, DISTANCE bytes ahead. Of several,
// each fetches its share of the next panel, while the present one lies in the cache: memory never rests.
struct Ahead {
    static constexpr int64_t DISTANCE = 10240;
    const char *from;
    int64_t step;  // bytes for each input

    Ahead(const void *panel, int64_t bytes, int64_t inputs, int64_t number, int64_t tiles)
        : from((const char *)panel + (tiles == 1 ? DISTANCE : bytes + number * (bytes / tiles))),
          step(bytes / inputs / tiles) {}

    template <int64_t Size> void fetch(int64_t input) const {
        constexpr int64_t lines = Size * PANEL < LINE ? 1 : Size * PANEL / LINE;
        for (int64_t line = 0; line < lines; line++) __builtin_prefetch(from + input * step + line * (step / lines), 0, 2);
    }
};

enum Kind : int32_t { FLOAT32, FLOAT16, BFLOAT16, INT8 };

struct Matrix {
    const void *panels;
    const float *bias;   // [outputs] or null
    const float *scale;  // [outputs] or null: what each output is multiplied by
    int64_t inputs, outputs;
    Kind kind;
};

// a [M, K] times panel columns [K, PANEL], of which `VECTORS` vectors of columns at a time -> out [M, PANEL].
template <int M, class Weight>
static void tile(const float *a, int64_t stride, const Weight *b, int64_t k, Ahead ahead, float *out) {
    for (int64_t column = 0; column < PANEL; column += 2 * LANES) {
        vf sums[M][2] = {};
        const Weight *at = b + column;
        for (int64_t i = 0; i < k; i++, at += PANEL) {
            ahead.fetch<sizeof(Weight)>(i);
            vf first = load(at), second = load(at + LANES);
            for (int m = 0; m < M; m++) {
                vf x = splat(a[m * stride + i]);
                sums[m][0] += x * first;
                sums[m][1] += x * second;
            }
        }
        for (int m = 0; m < M; m++) {
            store(out + m * PANEL + column, sums[m][0]);
            store(out + m * PANEL + column + LANES, sums[m][1]);
        }
    }
}

#if PAIRED
// Two neighbouring inputs of one output.
struct pair_t { bf16_t first, second; };

template <int M>
static void tile_pairs(const bf16_t *a, int64_t stride, const pair_t *b, int64_t k, Ahead ahead, float *out) {
    __m512 sums[M][2];
    for (int m = 0; m < M; m++) sums[m][0] = sums[m][1] = _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i += 2, b += PANEL) {
        ahead.fetch<sizeof(pair_t)>(i / 2);
        __m512bh first = (__m512bh)_mm512_loadu_si512(b), second = (__m512bh)_mm512_loadu_si512(b + LANES);
        for (int m = 0; m < M; m++) {
            int32_t two;
            std::memcpy(&two, a + m * stride + i, sizeof two);
            __m512bh x = (__m512bh)_mm512_set1_epi32(two);
            sums[m][0] = _mm512_dpbf16_ps(sums[m][0], x, first);
            sums[m][1] = _mm512_dpbf16_ps(sums[m][1], x, second);
        }
    }
    for (int m = 0; m < M; m++) {
        _mm512_storeu_ps(out + m * PANEL, sums[m][0]);
        _mm512_storeu_ps(out + m * PANEL + LANES, sums[m][1]);
    }
}

static void round_rows(const float *x, int64_t stride, int64_t rows, int64_t k, bf16_t *to) {
    for (int64_t row = 0; row < rows; row++, x += stride, to += k) {
        int64_t i = 0;
        for (; i + LANES <= k; i += LANES)
            _mm256_storeu_si256((__m256i *)(to + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
        if (i < k) {
            __mmask16 rest = (__mmask16)((1u << (k - i)) - 1);
            _mm256_mask_storeu_epi16(to + i, rest, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(rest, x + i)));
        }
    }
}
#endif

template <class Input, class Weight> using Tile = void (*)(const Input *, int64_t, const Weight *, int64_t, Ahead, float *);

template <class Weight, size_t... I> static Tile<float, Weight> tile_of(int rows, std::index_sequence<I...>) {
    static constexpr Tile<float, Weight> tiles[] = {tile<(int)I + 1, Weight>...};
    return tiles[rows - 1];
}

template <class Weight> static Tile<float, Weight> tile_of(int rows) {
    return tile_of<Weight>(rows, std::make_index_sequence<TILE>());
}

#if PAIRED
template <size_t... I> static Tile<bf16_t, pair_t> tile_of_pairs(int rows, std::index_sequence<I...>) {
    static constexpr Tile<bf16_t, pair_t> tiles[] = {tile_pairs<(int)I + 1>...};
    return tiles[rows - 1];
}

#endif

// Rows split into tiles of about one size: 13 rows are 7 and 6, since a tile of one row costs nearly as much as one
// of six.
struct Tiling {
    explicit Tiling(int64_t rows) : rows(rows), tiles((rows + TILE - 1) / TILE) {}
    int64_t start(int64_t i) const { return i * rows / tiles; }
    const int64_t rows, tiles;
};

// Rows that one piece of work covers at most, a multiple of what fills tiles; and panels that they meet in a row, while
// the cache holds them.
constexpr int64_t BLOCK = 16 * TILE;
constexpr int64_t RUN = 8;

// Panels are of `length` elements.
template <class Input, class Weight, class Choose, class Finish>
static void product_of(const Member &member, const Input *x, int64_t stride, int64_t rows, const Matrix &w, int64_t length,
                       const Choose &choose, const Finish &finish) {
    const Weight *panels = static_cast<const Weight *>(w.panels);
    int64_t count = (w.outputs + PANEL - 1) / PANEL, blocks = (rows + BLOCK - 1) / BLOCK;
    alignas(64) float out[TILE * PANEL];
    int64_t run = blocks > 1 ? RUN : 1, runs = (count + run - 1) / run;
    member.deal(runs * blocks * run, [&](int64_t piece) {
        int64_t panel = piece / (blocks * run) * run + piece % run, block = piece / run % blocks, column = panel * PANEL;
        if (panel >= count) return;
        int64_t first = block * rows / blocks, last = (block + 1) * rows / blocks;
        Tiling tiling(last - first);
        const Weight *b = panels + panel * length;
        for (int64_t i = 0; i < tiling.tiles; i++) {
            int64_t from = first + tiling.start(i), to = first + tiling.start(i + 1);
            Ahead ahead(b, length * sizeof(Weight), length / PANEL, i, tiling.tiles);
            choose((int)(to - from))(x + from * stride, stride, b, w.inputs, ahead, out);
            for (int64_t row = from; row < to; row++) {
                float *found = out + (row - from) * PANEL;
                if (w.scale)
                    for (int64_t c = 0; c < PANEL; c++) found[c] *= w.scale[column + c];
                if (w.bias)
                    for (int64_t c = 0; c < PANEL; c++) found[c] += w.bias[column + c];
                finish(row, column, found);
            }
        }
    });
    member.meet();
}

template <class Weight, class Finish>
static void product_of(const Member &member, const float *x, int64_t stride, int64_t rows, const Matrix &w, const Finish &finish) {
    product_of<float, Weight>(member, x, stride, rows, w, w.inputs * PANEL, [](int m) { return tile_of<Weight>(m); }, finish);
}

#if PAIRED
template <class Finish>
static void product_of_pairs(const Member &member, const float *x, int64_t stride, int64_t rows, const Matrix &w, const Finish &finish) {
    // Every thread rounds all rows for itself: that costs less than to wait for each other.
    static thread_local std::vector<bf16_t> rounded;
    rounded.resize(rows * w.inputs);
    round_rows(x, stride, rows, w.inputs, rounded.data());
    product_of<bf16_t, pair_t>(member, rounded.data(), w.inputs, rows, w, w.inputs / 2 * PANEL,
                               [](int m) { return tile_of_pairs(m, std::make_index_sequence<TILE>()); }, finish);
}
#endif

// x [rows, inputs], `stride` apart, times w; `finish(row, column, found)` gets 32 results of a row at a time. Scale
// and bias are padded to whole panels. Ends with a barrier.
template <class Finish>
static void product(const Member &member, const float *x, int64_t stride, int64_t rows, const Matrix &w, const Finish &finish) {
    switch (w.kind) {
    case FLOAT32: return product_of<float>(member, x, stride, rows, w, finish);
    case FLOAT16: return product_of<half_t>(member, x, stride, rows, w, finish);
    case BFLOAT16:
#if PAIRED
        return product_of_pairs(member, x, stride, rows, w, finish);
#else
        return product_of<bf16_t>(member, x, stride, rows, w, finish);
#endif
    case INT8: return product_of<int8_t>(member, x, stride, rows, w, finish);
    }
}
