#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>

#include "tests/support/races.h"  // RINGSIDE_TSAN

namespace ringside::testing {
namespace {

thread_local uint64_t allocations = 0;
std::atomic<int64_t> live_bytes{0};
std::atomic<bool> marking{false};
std::atomic<std::byte*> largest_block{nullptr};
std::atomic<size_t> largest_size{0};

}  // namespace

bool CanCountAllocations() {
#ifdef RINGSIDE_TSAN
  return false;
#else
  return true;
#endif
}

uint64_t AllocationsOfThisThread() {
  return allocations;
}

int64_t LiveBytes() {
  return live_bytes;
}

MarkLargeBlocks::MarkLargeBlocks() {
  largest_size = 0;
  marking = true;
}

MarkLargeBlocks::~MarkLargeBlocks() {
  marking = false;
}

std::span<const std::byte> MarkLargeBlocks::largest() const {
  return {largest_block.load(), largest_size.load()};
}

#ifndef RINGSIDE_TSAN
namespace {

void* Allocate(size_t size) {
  ++allocations;
  void* block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) std::abort();
  live_bytes += static_cast<int64_t>(malloc_usable_size(block));
  if (marking && size >= MarkLargeBlocks::kLarge) {
    std::memset(block, std::to_integer<int>(MarkLargeBlocks::kMark), size);
    if (size > largest_size) {
      largest_block = static_cast<std::byte*>(block);
      largest_size = size;
    }
  }
  return block;
}

void Free(void* block) {
  live_bytes -= static_cast<int64_t>(malloc_usable_size(block));  // of null: 0
  std::free(block);
}

}  // namespace
#endif
}  // namespace ringside::testing

#ifndef RINGSIDE_TSAN

// Nothing here is aligned beyond malloc's own alignment; the aligned operators stay as they are.
void* operator new(size_t size) {
  return ringside::testing::Allocate(size);
}
void* operator new[](size_t size) {
  return ringside::testing::Allocate(size);
}
void operator delete(void* block) noexcept {
  ringside::testing::Free(block);
}
void operator delete[](void* block) noexcept {
  ringside::testing::Free(block);
}
void operator delete(void* block, size_t) noexcept {
  ringside::testing::Free(block);
}
void operator delete[](void* block, size_t) noexcept {
  ringside::testing::Free(block);
}
#endif
