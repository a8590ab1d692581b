// Vectors of floats as wide as the machine has them, and the ways to load one from stored weights.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#define LANES 16
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define LANES 8
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#define LANES 4
#else
#error "agentree: these kernels need AVX2 with FMA and F16C, AVX-512, or 64-bit NEON"
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
struct half_t { uint16_t bits; };
struct bf16_t { uint16_t bits; };

// Outputs that one panel of packed weights holds side by side.
constexpr int64_t PANEL = 32;

static inline vf load(const float *p) {
    vf v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
static inline void store(float *p, vf v) { std::memcpy(p, &v, sizeof v); }
static inline vf splat(float x) { return x - vf{}; }

#if LANES == 16
static inline vf load(const half_t *p) { return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline vf load(const bf16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return (vf)_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline vf load(const int8_t *p) {
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
#elif LANES == 8
static inline vf load(const half_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline vf load(const bf16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return (vf)_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vf load(const int8_t *p) {
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
#else
static inline vf load(const half_t *p) { return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits))); }
static inline vf load(const bf16_t *p) { return (vf)vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&p->bits), 16)); }
static inline vf load(const int8_t *p) {
    int32_t four;
    std::memcpy(&four, p, sizeof four);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return (vf)vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}
#endif

// e^x for x <= 0 to within 2 units in the last place; 0 below -87. Range reduction by ln 2 in two parts, then
// a polynomial of degree 6 (Cody and Waite, "Software Manual for the Elementary Functions", 1980).
static inline vf exp_negative(vf x) {
    x = x < splat(-87.0f) ? splat(-88.0f) : x;
    vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number.
    vf n = (x * 1.44269504088896341f + magic) - magic;
    vf r = x - n * 0.693145751953125f - n * 1.42860682030941723212e-6f;
    vf p = splat(1.0f / 720.0f);
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    vi scale = (__builtin_convertvector(n, vi) + 127) << 23;
    return x <= splat(-88.0f) ? vf{} : p * (vf)scale;
}

static inline float sum(vf v) {
    float total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

static inline float largest(vf v) {
    float found = v[0];
    for (int i = 1; i < LANES; i++) found = v[i] > found ? v[i] : found;
    return found;
}

// One step of a transposition by blocks: exchanges the lanes of `a` whose index has bit S with the lanes of `b`
// whose index lacks it.
template <int S, size_t... I> static inline void exchange(vf &a, vf &b, std::index_sequence<I...>) {
    vf low = __builtin_shufflevector(a, b, ((I & S) ? (int)(LANES + I - S) : (int)I)...);
    vf high = __builtin_shufflevector(a, b, ((I & S) ? (int)(LANES + I) : (int)(I + S))...);
    a = low;
    b = high;
}

template <int S> static inline void exchange_all(vf *rows) {
    for (int i = 0; i < LANES; i++)
        if (!(i & S)) exchange<S>(rows[i], rows[i + S], std::make_index_sequence<LANES>());
    if constexpr (S > 1) exchange_all<S / 2>(rows);
}

// Transpose LANES x LANES floats in registers.
static inline void transpose(vf *rows) { exchange_all<LANES / 2>(rows); }

// The sums of LANES vectors, one in each lane; uses them up.
template <int S = LANES / 2> static inline vf sums(vf *rows) {
    for (int i = 0; i < S; i++) {
        exchange<S>(rows[i], rows[i + S], std::make_index_sequence<LANES>());
        rows[i] += rows[i + S];
    }
    if constexpr (S > 1) return sums<S / 2>(rows);
    return rows[0];
}
