// CRC-32C (Castagnoli), by the processor's instruction where it has one. It finds what hardware
// spoils; it is no protection against those who mean harm.
//
// Threads: any. Spec: RFC 3720 appendix B.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringside {

// `before`: the result for what stands in front of `bytes`, so that pieces give what the whole
// does.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The same without the instruction, for tests of it.
uint32_t Crc32cByTable(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace ringside
