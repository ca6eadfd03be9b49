#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cpuid.h>
#include <cstring>
#include <immintrin.h>

namespace ringside {
namespace {

// Section 4.2.2: of the cube roots of the first primes.
alignas(16) constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

bool ProcessorHasSha() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kSha = 1U << 29;    // leaf 7, EBX
  constexpr unsigned kSse41 = 1U << 19;  // leaf 1, ECX
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSse41) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

uint32_t BigEndian(const std::byte* at) {
  uint32_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return __builtin_bswap32(word);
}

}  // namespace

Sha256::Sha256(bool by_hand)
    : rounds_(!by_hand && ProcessorHasSha() ? RoundsByProcessor : RoundsByHand),
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,  // section 5.3.3
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::Update(std::span<const std::byte> bytes) {
  const size_t there = bytes_ % kBlock;
  bytes_ += bytes.size();
  if (there > 0) {
    const auto first = bytes.first(std::min(bytes.size(), kBlock - there));
    std::ranges::copy(first, rest_.begin() + static_cast<ptrdiff_t>(there));
    bytes = bytes.subspan(first.size());
    if (there + first.size() < kBlock) return;
    rounds_(state_, rest_.data(), 1);
  }
  rounds_(state_, bytes.data(), bytes.size() / kBlock);
  std::ranges::copy(bytes.last(bytes.size() % kBlock), rest_.begin());
}

Sha256::Digest Sha256::Finish() {
  // Section 5.1.1: a bit, zeroes, and the length in bits, big-endian, at the end of a block.
  const uint64_t bits = __builtin_bswap64(bytes_ * 8);
  constexpr std::array<std::byte, kBlock> kPadding = {std::byte{0x80}};
  const size_t there = bytes_ % kBlock;
  const size_t end = kBlock - sizeof bits;
  Update(std::span(kPadding).first(there < end ? end - there : kBlock + end - there));
  Update(std::as_bytes(std::span(&bits, 1)));
  Digest digest;
  for (size_t i = 0; i < state_.size(); ++i) {
    const uint32_t word = __builtin_bswap32(state_[i]);
    std::memcpy(&digest[i * sizeof word], &word, sizeof word);
  }
  return digest;
}

// Section 6.2.2.
void Sha256::RoundsByHand(State& state, const std::byte* blocks, size_t count) {
  for (; count > 0; --count, blocks += kBlock) {
    std::array<uint32_t, 64> w;
    for (size_t t = 0; t < 16; ++t) w[t] = BigEndian(blocks + t * 4);
    for (size_t t = 16; t < 64; ++t) {
      const uint32_t x = w[t - 15], y = w[t - 2];
      w[t] = (std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10)) + w[t - 7] +
             (std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3)) + w[t - 16];
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t t = 0; t < 64; ++t) {
      const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                          ((e & f) ^ (~e & g)) + kRound[t] + w[t];
      const uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const State more = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < state.size(); ++i) state[i] += more[i];
  }
}

// Intel SDM volume 2, SHA256RNDS2, SHA256MSG1, SHA256MSG2: two rounds an instruction on the state's
// halves ABEF and CDGH, and four words of the schedule at a time.
__attribute__((target("sha,sse4.1"))) void Sha256::RoundsByProcessor(State& state,
                                                                     const std::byte* blocks,
                                                                     size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const auto word = [&](size_t i) { return static_cast<int>(state[i]); };
  __m128i abef = _mm_set_epi32(word(0), word(1), word(4), word(5));
  __m128i cdgh = _mm_set_epi32(word(2), word(3), word(6), word(7));
  for (; count > 0; --count, blocks += kBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (size_t i = 0; i < 4; ++i) {
      const auto* const from = reinterpret_cast<const __m128i*>(blocks + i * sizeof(__m128i));
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(from), big_endian);
    }
    for (size_t i = 0; i < 16; ++i) {
      __m128i& now = w[i % 4];
      if (i >= 4) {
        const __m128i older = w[(i + 1) % 4], newer = w[(i + 2) % 4], newest = w[(i + 3) % 4];
        const __m128i sum =
            _mm_add_epi32(_mm_sha256msg1_epu32(now, older), _mm_alignr_epi8(newest, newer, 4));
        now = _mm_sha256msg2_epu32(sum, newest);
      }
      const auto* const constants = reinterpret_cast<const __m128i*>(&kRound[i * 4]);
      const __m128i sum = _mm_add_epi32(now, _mm_load_si128(constants));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const auto put = [&](__m128i half, size_t high, size_t low) {
    std::array<uint32_t, 4> words;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(words.data()), half);
    state[high] = words[3], state[high + 1] = words[2];
    state[low] = words[1], state[low + 1] = words[0];
  };
  put(abef, 0, 4);
  put(cdgh, 2, 6);
}

}  // namespace ringside
