// PCI configuration space that is saved and made anew: registers, and the BARs that follow.
#include <gtest/gtest.h>
#include <memory>

#include "tests/support/devices/pci_model.h"
#include "tests/support/devices/random_state.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::kWindow;
using testing::PciModel;
using testing::RandomState;
using testing::ReadAs;
using testing::TaggedFunction;
using testing::WriteAs;

constexpr uint32_t kCommand = 0x04;
constexpr uint32_t kBar0 = 0x10;
constexpr uint16_t kMemorySpace = 2;

// All of a machine's configuration space.
struct Saved {
  std::array<PciFunction::ConfigState, 3> functions;
  PciHost::State host;
  bool operator==(const Saved&) const = default;
};
auto Fields(Saved& state) {
  return std::tie(state.functions, state.host);
}

Saved Save(const PciModel& model) {
  Saved saved = {.functions = {}, .host = model.host.Save()};
  for (size_t i = 0; i < 3; ++i) saved.functions[i] = model.functions[i]->SaveConfig();
  return saved;
}

// All or nothing.
absl::Status Restore(PciModel& model, const Saved& saved) {
  for (size_t i = 0; i < 3; ++i) {
    RINGSIDE_RETURN_IF_ERROR(model.functions[i]->CheckConfig(saved.functions[i]));
  }
  RINGSIDE_RETURN_IF_ERROR(model.host.Check(saved.host));
  for (size_t i = 0; i < 3; ++i) {
    RINGSIDE_RETURN_IF_ERROR(model.functions[i]->RestoreConfig(saved.functions[i]));
  }
  return model.host.Restore(saved.host);
}

template <typename T>
void Write(PciModel& model, uint32_t device, uint32_t offset, T value) {
  WriteAs<T>(model.host.ecam(), device << 15 | offset, value);
}

TEST(PciState, BarsAreWhereTheGuestPutThem) {
  PciModel before;
  Write<uint32_t>(before, 1, kBar0, kWindow + 0x1000000);
  Write<uint16_t>(before, 1, kCommand, kMemorySpace);
  Write<uint32_t>(before, 2, kBar0, kWindow + 0x2000000);  // its decoding stays off
  Write<uint32_t>(before, 2, before.large.capability + 4, 0x12345678);
  WriteAs<uint32_t>(before.host.ports(), 0, 0x80000000 | 2 << 11 | (before.large.capability + 4));

  PciModel after;
  ASSERT_EQ(Restore(after, Save(before)), absl::OkStatus());
  EXPECT_EQ(Save(after), Save(before));
  EXPECT_EQ(after.Broken(), "");
  EXPECT_EQ(ReadAs<uint8_t>(after.memory, kWindow + 0x1000000), after.small.tag(0));
  EXPECT_EQ(ReadAs<uint8_t>(after.memory, kWindow + 0x2000000), 0xff);
  EXPECT_EQ(ReadAs<uint32_t>(after.host.ports(), 4), 0x12345678u);  // what was selected is selected
  Write<uint16_t>(after, 2, kCommand, kMemorySpace);
  EXPECT_EQ(ReadAs<uint8_t>(after.memory, kWindow + 0x2000000), after.large.tag(0));
}

TEST(PciState, OfBarsThatOverlapTheOtherComesWhenThePlaceIsFree) {
  PciModel before;
  Write<uint16_t>(before, 2, kCommand, kMemorySpace);
  Write<uint16_t>(before, 1, kCommand, kMemorySpace);
  Write<uint32_t>(before, 1, kBar0, kWindow + 0x4000000);
  Write<uint32_t>(before, 2, kBar0, kWindow + 0x4000000);

  PciModel after;
  ASSERT_EQ(Restore(after, Save(before)), absl::OkStatus());
  EXPECT_EQ(after.Broken(), "");
  EXPECT_EQ(ReadAs<uint8_t>(after.memory, kWindow + 0x4000000), after.small.tag(0));
  Write<uint32_t>(after, 1, kBar0, kWindow + 0x5000000);
  EXPECT_EQ(ReadAs<uint8_t>(after.memory, kWindow + 0x4000000), after.large.tag(0));
}

TEST(PciState, OnlyWhatTheGuestMayWriteMayDiffer) {
  const TaggedFunction function(0x1042, {4096}, 1);
  const PciFunction::ConfigState state = function.SaveConfig();
  int writable = 0;
  for (size_t i = 0; i < PciFunction::kConfigSize; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      PciFunction::ConfigState changed = state;
      changed.bytes[i] ^= static_cast<uint8_t>(1 << bit);
      TaggedFunction after(0x1042, {4096}, 1);
      if (after.RestoreConfig(changed).ok()) {
        ++writable;
        EXPECT_EQ(after.SaveConfig(), changed);
      } else {
        EXPECT_EQ(after.SaveConfig(), state);
      }
    }
  }
  // Command, interrupt line, BAR 0, and the capability's four bytes.
  EXPECT_EQ(writable, 3 + 8 + 20 + 32);
}

TEST(PciState, AnotherMachinesStateIsRefused) {
  PciModel model;
  const Saved before = Save(model);
  Saved state = before;
  state.functions[0] = before.functions[1];
  EXPECT_THAT(Restore(model, state), IsBadInput("byte 0x2", "0x44"));
  state = before;
  state.host.config_address = 0x80000001;
  EXPECT_THAT(Restore(model, state), IsBadInput("configuration address", "0x80000001"));
  state = before;
  state.host.functions[2] = 0x10431af4;
  EXPECT_THAT(Restore(model, state),
              IsBadInput("PCI device 2 was a device 1af4:1043", "is a source of entropy here"));
  state = before;
  state.host.functions[31] = 0x10431af4;
  EXPECT_THAT(Restore(model, state),
              IsBadInput("PCI device 31 was a device 1af4:1043", "is nothing here"));
  EXPECT_EQ(Save(model), before);
}

TEST(PciState, AnyBytesAreTakenOrRefused) {
  RandomState random(3);
  auto model = std::make_unique<PciModel>();
  const Saved fresh = Save(*model);
  int taken = 0;
  for (int round = 0; round < 8000; ++round) {
    Saved state = fresh;
    if (round % 8 == 0) {
      random.Fill(state, 0);
    } else {
      // What decodes has BARs to map.
      for (auto& function : state.functions) function.bytes[kCommand] = kMemorySpace;
      if (round % 2 == 0) random.Mutate(state);
      for (int i = 0; i < 3; ++i) {
        const size_t at = kBar0 + random.Below(24);
        state.functions[random.Below(3)].bytes[at] ^= random.Value<uint8_t>() & 0xf0;
      }
    }
    if (!Restore(*model, state).ok()) {
      ASSERT_EQ(Save(*model), fresh);
      continue;
    }
    ++taken;
    ASSERT_EQ(Save(*model), state);
    ASSERT_EQ(model->Broken(), "");
    Write<uint32_t>(*model, static_cast<uint32_t>(1 + random.Below(3)), kBar0,
                    random.Value<uint32_t>());
    ASSERT_EQ(model->Broken(), "");
    model = std::make_unique<PciModel>();
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace ringside
