// A check for tools/powercut of what the guest of tests/guest has written with records=1:
//
//   records_check IMAGE CONSOLE SEED [BASE...]
//   records_check --make OVERLAY BASE...
//
// With bases, a raw image and any overlays on it, the image is an overlay's file. The second form
// makes one, as it is before its first write.
//
// The guest says on its console after each flush up to which record all are durable. After the
// POWERCUT_FLUSHES-th flush, these have to be there, whole; a flush of an overlay is at most two of
// its file. Exit status: 0, or 1 with a line that says what is missing.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/guest/record.h"
#include "tests/support/overlay/read_overlay.h"

namespace {

// How many records the guest has called durable after so many flushes.
uint64_t Promised(const char* console, uint64_t flushes) {
  constexpr std::string_view kDurable = "guest: durable ";
  std::ifstream lines(console);
  uint64_t promised = 0;
  for (std::string line; flushes > 0 && std::getline(lines, line);) {
    if (!line.starts_with(kDurable)) continue;
    promised = std::stoull(line.substr(kDurable.size())) + 1;
    --flushes;
  }
  return promised;
}

std::string ReadRaw(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

int Make(int count, char** arguments) {
  const std::vector<std::string> chain(arguments + 3, arguments + count);
  const absl::Status status = ringside::testing::MakeOverlayOn(chain, arguments[2]);
  if (!status.ok()) std::printf("%s\n", std::string(ringside::Message(status)).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count >= 4 && std::string_view(arguments[1]) == "--make") return Make(count, arguments);
  const char* flushes = std::getenv("POWERCUT_FLUSHES");
  if (count < 4 || flushes == nullptr) {
    std::puts("usage: POWERCUT_FLUSHES=N records_check IMAGE CONSOLE SEED [BASE...]");
    return 2;
  }
  const bool is_overlay = count > 4;
  const uint64_t promised = Promised(arguments[2], std::stoull(flushes) / (is_overlay ? 2 : 1));
  const uint64_t seed = std::stoull(arguments[3]);
  std::string image;
  if (is_overlay) {
    std::vector<std::string> chain(arguments + 4, arguments + count);
    chain.emplace_back(arguments[1]);
    const auto content = ringside::testing::ReadOverlay(chain, promised * sizeof(guest::Record));
    if (!content.ok()) {
      std::printf("%s\n", std::string(ringside::Message(content.status())).c_str());
      return 1;
    }
    image = *content;
  } else {
    image = ReadRaw(arguments[1]);
  }
  for (uint64_t number = 0; number < promised; ++number) {
    guest::Record record;
    if (image.size() >= (number + 1) * sizeof record) {
      std::memcpy(&record, &image[number * sizeof record], sizeof record);
      if (guest::IsRecord(record, number, seed)) continue;
    }
    std::printf("record %llu of %llu that are durable after %s flushes is not there\n",
                static_cast<unsigned long long>(number), static_cast<unsigned long long>(promised),
                flushes);
    return 1;
  }
  return 0;
}
