#include "overlay/map_page.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/crc32c.h"

namespace ringside {
namespace {

enum class Judgement {
  kVoid,  // never written, or of a former epoch
  kValid,
  kTorn,   // not what anybody has written
  kWrong,  // whole, and no page of this file in this place
};

std::span<const std::byte> BytesOf(const MapPage& page) {
  return std::as_bytes(std::span(&page, 1));
}

uint32_t CrcOf(const MapPage& page) {
  constexpr size_t kCrc = offsetof(MapPage, crc);
  constexpr std::array<std::byte, sizeof(MapPage::crc)> kZero = {};
  const std::span bytes = BytesOf(page);
  const uint32_t crc = Crc32c(kZero, Crc32c(bytes.first(kCrc)));
  return Crc32c(bytes.subspan(kCrc + kZero.size()), crc);
}

// Whether a bit is set at block `from` of the page or behind it.
bool AnyFrom(const MapPlane& plane, uint64_t from) {
  for (uint64_t i = from / 64; i < plane.size(); ++i) {
    const uint64_t spared = i == from / 64 ? (uint64_t{1} << from % 64) - 1 : 0;
    if ((plane[i] & ~spared) != 0) return true;
  }
  return false;
}

bool BitsMakeSense(const MapPage& page, uint64_t blocks) {
  for (size_t i = 0; i < page.here.size(); ++i) {
    if ((page.here[i] & page.zeroes[i]) != 0) return false;
  }
  return !AnyFrom(page.here, blocks) && !AnyFrom(page.zeroes, blocks) &&
         !AnyFrom(page.dirty, blocks);
}

Judgement Judge(const MapPage& page, uint64_t number, const PageRules& rules) {
  const std::span bytes = BytesOf(page);
  if (page.magic != MapPage::kMagic || page.crc != CrcOf(page)) {
    const bool is_zero =
        std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
    return is_zero ? Judgement::kVoid : Judgement::kTorn;
  }
  if (page.number != number || page.epoch > rules.epoch || page.sequence == 0) {
    return Judgement::kWrong;
  }
  if (page.epoch < rules.epoch) return Judgement::kVoid;
  if (page.period > rules.period) return Judgement::kWrong;
  const uint64_t first = number * kBlocksPerMapPage;
  const uint64_t blocks = rules.blocks > first ? rules.blocks - first : 0;
  return BitsMakeSense(page, std::min(blocks, kBlocksPerMapPage)) ? Judgement::kValid
                                                                  : Judgement::kWrong;
}

}  // namespace

void SealPage(MapPage& page) {
  page.crc = CrcOf(page);
}

ChosenPage ChoosePage(const std::array<MapPage, 2>& slots, uint64_t number,
                      const PageRules& rules) {
  const std::array judged = {Judge(slots[0], number, rules), Judge(slots[1], number, rules)};
  const auto any = [&](Judgement what) { return judged[0] == what || judged[1] == what; };
  ChosenPage chosen;
  chosen.is_torn = any(Judgement::kTorn);
  if (any(Judgement::kWrong) || (chosen.is_torn && !rules.may_be_torn)) {
    chosen.is_corrupt = true;
    return chosen;
  }
  const bool both = judged[0] == judged[1];
  if (both && judged[0] == Judgement::kTorn) {
    chosen.is_corrupt = true;  // one of them was whole before the other was written
  } else if (both && judged[0] == Judgement::kValid) {
    chosen.slot = slots[1].sequence > slots[0].sequence ? 1 : 0;
    chosen.is_corrupt = slots[0].sequence == slots[1].sequence;
  } else if (any(Judgement::kValid)) {
    chosen.slot = judged[0] == Judgement::kValid ? 0 : 1;
  }
  return chosen;
}

}  // namespace ringside
