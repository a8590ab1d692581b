// The forward pass of a Llama-like decoder on CPU threads, behind a C interface.
#include "attention.h"
#include <new>
#include <optional>

struct Layer {
    const float *attention_norm;  // [hidden]
    const float *qk_norm;         // [heads + kv_heads, size] or null
    const float *mlp_norm;        // [hidden]
    Matrix qkv, output, gate_up, down;
};

struct Decoder {
    int64_t layers, hidden, inner, vocab;
    int64_t heads, kv_heads, size;
    float eps;
    const Layer *layer;
    const float *norm;
    Matrix head;
};

struct Batch {
    int64_t tokens, jobs, wanted;
    float *hidden;             // [tokens, hidden]: the embedding of each token; used up
    const float *rotation;     // [tokens, size]: cosine and sine of each pair
    const int64_t *writes;     // [tokens]: the slot of each token
    const int64_t *slots;      // what jobs name contexts in
    const int64_t *queries;    // what jobs name tokens in
    const Job *job;
    const int64_t *want;       // [wanted]: tokens whose logits are asked for
    float *const *pool;        // per layer [slots, 2 * kv_heads, size]
    float *logits;             // [wanted, vocab]
};

namespace {

constexpr int64_t GATES = PANEL / 2;  // a panel of gate_up holds so many gates, then their ups

void normalize(const float *x, const float *weight, int64_t size, float eps, float *out) {
    vf squares{};
    int64_t i = 0;
    float rest = 0;
    for (; i + LANES <= size; i += LANES) {
        vf v = load(x + i);
        squares += v * v;
    }
    for (; i < size; i++) rest += x[i] * x[i];
    float scale = 1.0f / std::sqrt((sum(squares) + rest) / size + eps);
    for (i = 0; i < size; i++) out[i] = x[i] * scale * weight[i];
}

void rotate(float *__restrict head, const float *__restrict rotation, int64_t size) {
    for (int64_t i = 0; i < size; i += 2) {
        float a = head[i], b = head[i + 1], cosine = rotation[i], sine = rotation[i + 1];
        head[i] = a * cosine - b * sine;
        head[i + 1] = a * sine + b * cosine;
    }
}

// Memory that lasts from one forward pass to the next.
struct Space {
    std::vector<float> floats;
    float *fit(int64_t count) {
        if ((int64_t)floats.size() < count) floats.resize(count);
        return floats.data();
    }
};

struct Spaces {
    Space normal, qkv, attended, inner, partial, weight, kept;
};

struct Forward {
    const Decoder &model;
    const Batch &batch;
    const Heads heads;
    const Cuts cuts;
    float *const normal, *const qkv, *const attended, *const inner, *const partial, *const weight, *const kept;

    Forward(const Decoder &model, const Batch &batch, Spaces &spaces)
        : model(model), batch(batch), heads{model.heads, model.kv_heads, model.size},
          cuts(heads, batch.job, batch.jobs, batch.queries, batch.tokens),
          normal(spaces.normal.fit(most() * model.hidden)), qkv(spaces.qkv.fit(batch.tokens * heads.width())),
          attended(spaces.attended.fit(batch.tokens * heads.queries())), inner(spaces.inner.fit(most() * model.inner)),
          partial(spaces.partial.fit(cuts.partials * heads.queries())),
          weight(spaces.weight.fit(cuts.partials * heads.heads)),
          kept(spaces.kept.fit(batch.wanted * (model.hidden + heads.queries()))) {}

    // Tokens may be wanted more than once.
    int64_t most() const { return std::max(batch.tokens, batch.wanted); }

    void norm(const Member &member, const float *x, const float *with, int64_t rows) {
        member.deal(rows, [&](int64_t row) {
            normalize(x + row * model.hidden, with, model.hidden, model.eps, normal + row * model.hidden);
        });
        member.meet();
    }

    void add(const Member &member, const float *x, int64_t width, const Matrix &matrix, float *hidden, int64_t rows) {
        product(member, x, width, rows, matrix, [&](int64_t row, int64_t column, const float *found) {
            float *to = hidden + row * model.hidden + column;
            int64_t n = std::min(PANEL, model.hidden - column);
            for (int64_t c = 0; c < n; c++) to[c] += found[c];
        });
    }

    // Rotate q and k, and write k and v to their slots.
    void place(const Member &member, const Layer &layer, float *pool) {
        int64_t turned = heads.heads + heads.kv_heads, row = 2 * heads.kv_heads * heads.size;
        member.deal(batch.tokens, [&](int64_t token) {
            float *found = qkv + token * heads.width();
            const float *rotation = batch.rotation + token * heads.size;
            for (int64_t head = 0; head < turned; head++) {
                float *at = found + head * heads.size;
                if (layer.qk_norm) normalize(at, layer.qk_norm + head * heads.size, heads.size, model.eps, at);
                rotate(at, rotation, heads.size);
            }
            std::memcpy(pool + batch.writes[token] * row, found + heads.queries(), row * sizeof(float));
        });
        member.meet();
    }

    void run(const Member &member) {
        Desk desk;
        float *hidden = batch.hidden, *context = attended;
        int64_t rows = batch.tokens, width = heads.width();
        for (int64_t number = 0; number < model.layers; number++) {
            const Layer &layer = model.layer[number];
            bool last = number == model.layers - 1;
            norm(member, hidden, layer.attention_norm, rows);
            product(member, normal, model.hidden, rows, layer.qkv, [&](int64_t row, int64_t column, const float *found) {
                std::memcpy(qkv + row * width + column, found, std::min(PANEL, width - column) * sizeof(float));
            });
            place(member, layer, batch.pool[number]);
            if (last && !batch.wanted) return;
            Attention{heads, qkv, batch.pool[number], batch.slots, batch.queries, cuts, attended,
                      partial, weight}.run(member, desk);
            if (last) {
                // Past the last attention a token influences no other one.
                float *picked = kept + batch.wanted * model.hidden;
                member.deal(batch.wanted, [&](int64_t i) {
                    std::memcpy(kept + i * model.hidden, hidden + batch.want[i] * model.hidden, model.hidden * sizeof(float));
                    std::memcpy(picked + i * heads.queries(), context + batch.want[i] * heads.queries(), heads.queries() * sizeof(float));
                });
                member.meet();
                hidden = kept;
                context = picked;
                rows = batch.wanted;
            }
            add(member, context, heads.queries(), layer.output, hidden, rows);
            norm(member, hidden, layer.mlp_norm, rows);
            product(member, normal, model.hidden, rows, layer.gate_up, [&](int64_t row, int64_t column, const float *found) {
                float *to = inner + row * model.inner + column / 2;
                for (int64_t c = 0; c < GATES; c += LANES) {
                    vf gate = load(found + c), up = load(found + GATES + c);
                    vf small = exp_negative(gate < vf{} ? gate : -gate);
                    vf sigmoid = (gate < vf{} ? small : splat(1.0f)) / (1.0f + small);
                    store(to + c, gate * sigmoid * up);
                }
            });
            add(member, inner, model.inner, layer.down, hidden, rows);
        }
        norm(member, hidden, model.norm, rows);
        product(member, normal, model.hidden, rows, model.head, [&](int64_t row, int64_t column, const float *found) {
            std::memcpy(batch.logits + row * model.vocab + column, found, std::min(PANEL, model.vocab - column) * sizeof(float));
        });
    }
};

template <class Element> void pack_as(const Element *from, int64_t outputs, int64_t inputs, Element *to) {
    for (int64_t first = 0; first < outputs; first += PANEL) {
        int64_t rows = std::min(PANEL, outputs - first);
        for (int64_t i = 0; i < inputs; i++, to += PANEL) {
            for (int64_t c = 0; c < rows; c++) to[c] = from[(first + c) * inputs + i];
            for (int64_t c = rows; c < PANEL; c++) to[c] = Element{};
        }
    }
}

}  // namespace

extern "C" {

// Lay out weights [outputs, inputs] of a kind as panels. The number of inputs is even.
void agentree_pack(const void *from, int64_t outputs, int64_t inputs, int32_t kind, void *to) {
    switch (kind) {
    case FLOAT32: return pack_as((const uint32_t *)from, outputs, inputs, (uint32_t *)to);
    case FLOAT16: return pack_as((const uint16_t *)from, outputs, inputs, (uint16_t *)to);
    // A pair of inputs is one element of twice the size.
    case BFLOAT16:
        if (PAIRED) return pack_as((const uint32_t *)from, outputs, inputs / 2, (uint32_t *)to);
        return pack_as((const uint16_t *)from, outputs, inputs, (uint16_t *)to);
    case INT8: return pack_as((const uint8_t *)from, outputs, inputs, (uint8_t *)to);
    }
}

// x [rows, inputs] times a matrix -> out [rows, outputs].
void agentree_product(const Matrix *matrix, const float *x, int64_t rows, float *out, int32_t threads) {
    Pool::shared().run(threads, [&](const Member &member) {
        product(member, x, matrix->inputs, rows, *matrix, [&](int64_t row, int64_t column, const float *found) {
            std::memcpy(out + row * matrix->outputs + column, found, std::min(PANEL, matrix->outputs - column) * sizeof(float));
        });
    });
}

// The whole batch: K and V to the pool, logits of the wanted tokens. 1 if there is no memory for it, else 0.
int32_t agentree_forward(const Decoder *model, const Batch *batch, int32_t threads) {
    static thread_local Spaces spaces;
    std::optional<Forward> forward;
    try {
        forward.emplace(*model, *batch, spaces);
    } catch (const std::bad_alloc &) {
        return 1;
    }
    Pool::shared().run(threads, [&](const Member &member) { forward->run(member); });
    return 0;
}
}
