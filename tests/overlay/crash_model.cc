#include "tests/overlay/crash_model.h"

#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "block/block_device.h"
#include "faults/fault_plan.h"
#include "faults/record_format.h"

namespace ringside::testing {

CrashRecord::CrashRecord(std::string bytes) : bytes_(std::move(bytes)) {
  std::map<uint64_t, size_t> by_number;
  uint64_t at = sizeof(RecordHeader);
  places_.push_back(at);
  while (bytes_.size() - at >= sizeof(RecordEntry)) {
    RecordEntry entry;
    std::memcpy(static_cast<void*>(&entry), bytes_.data() + at, sizeof entry);
    at += sizeof entry;
    if (entry.kind == RecordEntry::Kind::kCompleted) {
      if (entry.result == 0) requests_[by_number.at(entry.number)].end = at;
    } else {
      const bool has_data = entry.op == static_cast<uint8_t>(BlockOp::kWrite);
      const size_t data = at;
      if (has_data) at += entry.length;
      by_number[entry.number] = requests_.size();
      requests_.push_back({.place = at,
                           .op = entry.op,
                           .durable = (entry.flags & RecordEntry::kDurable) != 0,
                           .offset = entry.offset,
                           .length = entry.length,
                           .data = data});
    }
    places_.push_back(at);
  }
}

bool CrashRecord::IsDurable(const Request& request, uint64_t place) const {
  if (request.end > place) return false;
  if (request.durable) return true;
  for (const Request& flush : requests_) {
    const bool is_flush = flush.op == static_cast<uint8_t>(BlockOp::kFlush);
    if (is_flush && flush.place > request.end && flush.end <= place) return true;
  }
  return false;
}

void CrashRecord::Apply(const Request& request, uint64_t sector, uint64_t sectors, int fd) const {
  const uint64_t at = sector * kModelSector;
  const size_t length = sectors * kModelSector;
  const bool is_write = request.op == static_cast<uint8_t>(BlockOp::kWrite);
  const std::string zeroes(is_write ? 0 : length, '\0');
  const char* const data = is_write ? bytes_.data() + request.data + at : zeroes.data();
  if (pwrite(fd, data, length, static_cast<off_t>(request.offset + at)) !=
      static_cast<ssize_t>(length)) {
    std::abort();
  }
}

void CrashRecord::Replay(uint64_t place, uint64_t random, int fd) const {
  uint64_t state = random;
  for (const Request& request : requests_) {
    if (request.place > place || request.op == static_cast<uint8_t>(BlockOp::kFlush)) continue;
    const uint64_t sectors = request.length / kModelSector;
    const uint64_t fate = NextRandom(state) % 4;
    if (IsDurable(request, place) || random == 1 || (random != 0 && fate == 0)) {
      Apply(request, 0, sectors, fd);
    } else if (random != 0 && fate != 1) {
      for (uint64_t i = 0; i < sectors; ++i) {
        if (NextRandom(state) % 2 == 0) Apply(request, i, 1, fd);
      }
    }
  }
}

}  // namespace ringside::testing
