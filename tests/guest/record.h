// The records of records=1: record k lies at byte k * 4096 of the disk and says so itself. Also
// included by host programs that read an image from outside, so it is free of everything else.

#ifndef RINGSIDE_TESTS_GUEST_RECORD_H_
#define RINGSIDE_TESTS_GUEST_RECORD_H_

#include <cstddef>
#include <cstdint>

namespace guest {

struct Record {
  static constexpr uint64_t kMagic = 0x64726f6365526753;  // "SgRecord"
  static constexpr size_t kPayloadWords = 508;

  uint64_t magic;
  uint64_t number;
  uint64_t seed;
  uint64_t checksum;  // of all the rest
  uint64_t payload[kPayloadWords];
};
static_assert(sizeof(Record) == 4096);

constexpr uint64_t kRecordSize = sizeof(Record);
constexpr uint64_t kRecordSectors = kRecordSize / 512;

constexpr uint64_t RecordChecksum(const Record& record) {
  uint64_t sum = 0xcbf29ce484222325;
  const auto add = [&sum](uint64_t word) { sum = (sum ^ word ^ sum >> 29) * 0x100000001b3; };
  add(record.magic);
  add(record.number);
  add(record.seed);
  for (const uint64_t word : record.payload) add(word);
  return sum;
}

constexpr void FillRecord(Record& record, uint64_t number, uint64_t seed) {
  record.magic = Record::kMagic;
  record.number = number;
  record.seed = seed;
  uint64_t word = (number + 1) * 0x9e3779b97f4a7c15 ^ seed;
  for (uint64_t& at : record.payload) at = word = word * 6364136223846793005 + 1442695040888963407;
  record.checksum = RecordChecksum(record);
}

// Whether this is record `number`, whole.
constexpr bool IsRecord(const Record& record, uint64_t number, uint64_t seed) {
  return record.magic == Record::kMagic && record.number == number && record.seed == seed &&
         record.checksum == RecordChecksum(record);
}

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_RECORD_H_
