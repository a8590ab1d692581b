// Products of a few to many rows of activations with packed weights.
//
// Weights lie in panels of 32 outputs, input by input, so that a panel is one stream of memory. A tile keeps the
// sums of up to TILE rows and a panel in registers (Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", 2008). Each sum is built in the order of the inputs whatever the number of rows: a row's result
// is the same to the bit whoever runs beside it.
#pragma once
#include "simd.h"
#include "team.h"

#if LANES == 16
constexpr int TILE = 12;
#elif LANES == 8
constexpr int TILE = 6;
#else
constexpr int TILE = 8;
#endif

// How far ahead of a panel's stream memory is asked for, in bytes: what arrives while memory answers. With it few
// rows run at the full speed of the multipliers; what the processor fetches ahead by itself ends at each page.
constexpr int64_t AHEAD = 10240;
constexpr int64_t LINE = 64;

enum Kind : int32_t { FLOAT32, FLOAT16, BFLOAT16, INT8 };

struct Matrix {
    const void *panels;
    const float *bias;   // [outputs] or null
    const float *scale;  // [outputs] or null: what each output is multiplied by
    int64_t inputs, outputs;
    Kind kind;
};

// a [M, K] times panel columns [K, PANEL], of which `VECTORS` vectors of columns at a time -> out [M, PANEL].
template <int M, class Weight> static void tile(const float *a, int64_t stride, const Weight *b, int64_t k, float *out) {
    for (int64_t column = 0; column < PANEL; column += 2 * LANES) {
        vf sums[M][2] = {};
        const Weight *at = b + column;
        for (int64_t i = 0; i < k; i++, at += PANEL) {
            for (int64_t byte = 0; byte < PANEL * (int64_t)sizeof(Weight); byte += LINE)
                __builtin_prefetch((const char *)at + AHEAD + byte);
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

template <class Weight> using Tile = void (*)(const float *, int64_t, const Weight *, int64_t, float *);

template <class Weight, size_t... I> static Tile<Weight> tile_of(int rows, std::index_sequence<I...>) {
    static constexpr Tile<Weight> tiles[] = {tile<(int)I + 1, Weight>...};
    return tiles[rows - 1];
}

template <class Weight> static Tile<Weight> tile_of(int rows) {
    return tile_of<Weight>(rows, std::make_index_sequence<TILE>());
}

// Rows split into tiles of about one size: 13 rows are 7 and 6, since a tile of one row costs nearly as much as one
// of six.
struct Tiling {
    explicit Tiling(int64_t rows) : rows(rows), tiles((rows + TILE - 1) / TILE) {}
    int64_t start(int64_t i) const { return i * rows / tiles; }
    const int64_t rows, tiles;
};

// Rows that one piece of work covers at most, a multiple of what fills tiles.
constexpr int64_t BLOCK = 16 * TILE;

template <class Weight, class Finish>
static void product_of(Team &team, const float *x, int64_t stride, int64_t rows, const Matrix &w, const Finish &finish) {
    const Weight *panels = static_cast<const Weight *>(w.panels);
    int64_t count = (w.outputs + PANEL - 1) / PANEL, blocks = (rows + BLOCK - 1) / BLOCK;
    // Pieces of neighbouring panels: memory is read in int64_t runs, and the counter is asked seldom.
    int64_t run = count / (16 * team.size);
    run = run < 1 ? 1 : run > 16 ? 16 : run;
    int64_t runs = (count + run - 1) / run;
    alignas(64) float out[TILE * PANEL];
    for (int64_t piece = team.take(); piece < runs * blocks; piece = team.take()) {
        int64_t block = piece % blocks, first = block * rows / blocks, last = (block + 1) * rows / blocks;
        Tiling tiling(last - first);
        for (int64_t panel = piece / blocks * run; panel < count && panel < (piece / blocks + 1) * run; panel++) {
            const Weight *b = panels + panel * w.inputs * PANEL;
            for (int64_t i = 0; i < tiling.tiles; i++) {
                int64_t from = first + tiling.start(i), to = first + tiling.start(i + 1);
                tile_of<Weight>((int)(to - from))(x + from * stride, stride, b, w.inputs, out);
                int64_t column = panel * PANEL;
                for (int64_t row = from; row < to; row++) {
                    float *found = out + (row - from) * PANEL;
                    if (w.scale)
                        for (int64_t c = 0; c < PANEL; c++) found[c] *= w.scale[column + c];
                    if (w.bias)
                        for (int64_t c = 0; c < PANEL; c++) found[c] += w.bias[column + c];
                    finish(row, column, found);
                }
            }
        }
    }
    team.meet();
}

// x [rows, inputs], `stride` apart, times w; `finish(row, column, found)` gets 32 results of a row at a time. Scale
// and bias are padded to whole panels. Ends with a barrier.
template <class Finish>
static void product(Team &team, const float *x, int64_t stride, int64_t rows, const Matrix &w, const Finish &finish) {
    switch (w.kind) {
    case FLOAT32: return product_of<float>(team, x, stride, rows, w, finish);
    case FLOAT16: return product_of<half_t>(team, x, stride, rows, w, finish);
    case BFLOAT16: return product_of<bf16_t>(team, x, stride, rows, w, finish);
    case INT8: return product_of<int8_t>(team, x, stride, rows, w, finish);
    }
}
