// A namespace of an NvmeModel: what is durable, and a volatile write cache on top of it.
//
// Threads: under the model's lock. Units: bytes; ranges lie within the namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "tests/support/nvme/nvme_model.h"

namespace ringside::testing {

class NvmeModelMedia {
 public:
  explicit NvmeModelMedia(const NvmeModelNamespace& config);

  const NvmeModelNamespace& config() const { return config_; }
  uint64_t size() const { return size_; }

  // Memory to read from and to write to. What was written there is said by Written.
  std::byte* contents(uint64_t offset) { return contents_.get() + offset; }
  void Written(uint64_t offset, uint64_t size, bool durable);
  void Zero(uint64_t offset, uint64_t size, bool durable);
  void Flush();
  // Each block of the cache is lost or, as a random one says, was just saved; all are lost without.
  void PowerCut(std::mt19937_64* random);

  std::vector<std::byte> Durable() const { return {durable_.get(), durable_.get() + size_}; }
  std::vector<std::byte> Contents() const { return {contents_.get(), contents_.get() + size_}; }

 private:
  struct Unmap {
    uint64_t size;
    void operator()(std::byte* bytes) const { munmap(bytes, size); }
  };
  using Bytes = std::unique_ptr<std::byte[], Unmap>;
  // Memory that nobody has touched yet, so that a large namespace costs only what is used of it;
  // or that of a file.
  static Bytes Map(uint64_t size, const std::string& path);
  void Copy(const Bytes& from, const Bytes& to, uint64_t block);

  const NvmeModelNamespace config_;
  const uint64_t size_;
  Bytes durable_;
  Bytes contents_;
  std::vector<bool> is_cached_;   // by block
  std::vector<uint64_t> cached_;  // those blocks
};

}  // namespace ringside::testing
