// SHA-256 (FIPS 180-4), for telling whether a file is the one that it was: by the processor's own
// instructions where it has them, at some 1.5 GB/s, else at a tenth of that.
//
// Threads: an object belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ringside {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  // `by_hand`: without the processor's instructions, for tests.
  explicit Sha256(bool by_hand = false);
  void Update(std::span<const std::byte> bytes);
  // Of all that came. The object is of no more use.
  Digest Finish();

 private:
  static constexpr size_t kBlock = 64;
  using State = std::array<uint32_t, 8>;
  using Rounds = void (*)(State& state, const std::byte* blocks, size_t count);

  static void RoundsByHand(State& state, const std::byte* blocks, size_t count);
  static void RoundsByProcessor(State& state, const std::byte* blocks, size_t count);

  const Rounds rounds_;
  State state_;
  uint64_t bytes_ = 0;
  std::array<std::byte, kBlock> rest_;  // the first bytes_ % kBlock of it are there
};

}  // namespace ringside
