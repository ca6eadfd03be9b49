// An MSI-X table that is saved and made anew.
#include <gtest/gtest.h>
#include <memory>

#include "tests/support/devices/fake_pci_platform.h"
#include "tests/support/devices/random_state.h"
#include "tests/support/registers.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::FakePciPlatform;
using testing::RandomState;
using testing::ReadAs;
using testing::WriteAs;

constexpr uint64_t kAddress = 0x1'fee01000;

struct Table {
  explicit Table(uint16_t vectors) : msix(*Msix::Create(vectors, platform)) {}

  void SetVector(uint64_t index, uint64_t address, uint32_t data, bool masked) {
    WriteAs<uint64_t>(msix->table(), index * 16, address);
    WriteAs<uint64_t>(msix->table(), index * 16 + 8, uint64_t{masked} << 32 | data);
  }
  FakePciPlatform::Vector& vector(size_t index) { return *platform.vectors[index]; }
  uint64_t pending() { return ReadAs<uint64_t>(msix->pending_bits(), 0); }

  FakePciPlatform platform;
  std::unique_ptr<Msix> msix;
};

TEST(MsixState, TheTableComesBackAndWhatIsNotMaskedDelivers) {
  Table before(3);
  before.msix->SetControl(true, false);
  before.SetVector(0, kAddress, 0x41, false);
  before.SetVector(2, kAddress + 0x1000, 0x42, true);
  const Msix::State state = before.msix->Save();

  Table after(3);
  ASSERT_EQ(after.msix->Restore(state), absl::OkStatus());
  EXPECT_EQ(after.msix->Save(), state);
  EXPECT_TRUE(after.vector(0).unmasked);
  EXPECT_EQ(after.vector(0).address, kAddress);
  EXPECT_EQ(after.vector(0).data, 0x41u);
  EXPECT_EQ(after.vector(1).unmasks + after.vector(2).unmasks, 0);
  for (uint64_t at = 0; at < 3 * 16; at += 8) {
    EXPECT_EQ(ReadAs<uint64_t>(after.msix->table(), at),
              ReadAs<uint64_t>(before.msix->table(), at));
  }
}

TEST(MsixState, TheFunctionMaskComesBack) {
  Table before(1);
  before.SetVector(0, kAddress, 0x41, false);
  before.msix->SetControl(true, true);

  Table after(1);
  ASSERT_EQ(after.msix->Restore(before.msix->Save()), absl::OkStatus());
  EXPECT_EQ(after.vector(0).unmasks, 0);
  after.msix->SetControl(true, false);
  EXPECT_EQ(after.vector(0).unmasks, 1);
}

// An eventfd that is readable is what KVM injects when the vector is unmasked.
TEST(MsixState, AMaskedPendingVectorFiresWhenItIsUnmasked) {
  Table before(130);
  before.msix->SetControl(true, false);
  for (const uint16_t i : {0, 63, 64, 129}) before.msix->event(i)->Signal();
  before.SetVector(1, kAddress, 0x41, false);
  before.msix->event(1)->Signal();  // on its way: not pending
  const Msix::State state = before.msix->Save();
  EXPECT_EQ(before.msix->event(64)->count(), 1u);  // saving takes nothing
  EXPECT_EQ(before.msix->Save(), state);

  Table after(130);
  ASSERT_EQ(after.msix->Restore(state), absl::OkStatus());
  EXPECT_EQ(after.msix->Save(), state);
  for (uint16_t i = 0; i < 130; ++i) {
    const bool pending = i == 0 || i == 63 || i == 64 || i == 129;
    EXPECT_EQ(after.msix->event(i)->count(), pending ? 1u : 0u) << i;
  }
  EXPECT_EQ(after.pending(), uint64_t{1} << 63 | 1);
  after.SetVector(63, kAddress, 0x43, false);
  EXPECT_TRUE(after.vector(63).unmasked);
  EXPECT_EQ(after.vector(63).event().Clear(), 1u);
}

TEST(MsixState, WhatNoTableCanHoldIsRefused) {
  Table table(2);
  const Msix::State before = table.msix->Save();
  const auto refused = [&](const Msix::State& state, const char* what, const char* value) {
    EXPECT_THAT(table.msix->Restore(state), IsBadInput(what, value));
  };
  refused({.control = 0x8001, .entries = before.entries}, "message control", "0x8001");
  refused({.entries = {{}}}, "has 1 vectors", "has 2");
  refused({.entries = {{}, {}, {}}}, "has 3 vectors", "has 2");
  refused({.entries = {{}, {.control = 3}}}, "vector control", "0x3");
  refused({.entries = {{.address_low = 0xfee00002}, {}}}, "address", "0xfee00002");
  refused({.entries = {{}, {.pending = 2}}}, "pending", "0x2");
  refused({.control = Msix::kEnable, .entries = {{}, {.control = 0, .pending = 1}}}, "pending",
          "vector 1");
  EXPECT_EQ(table.msix->Save(), before);
  EXPECT_EQ(table.vector(0).unmasks + table.vector(1).unmasks, 0);
}

TEST(MsixState, AnyBytesAreTakenOrRefused) {
  constexpr uint16_t kVectors = 3;
  RandomState random(2);
  auto table = std::make_unique<Table>(kVectors);
  const Msix::State fresh = table->msix->Save();
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    Msix::State state = {
        .control = Msix::kEnable,
        .entries = {{.address_low = 0xfee00000, .control = 0}, {.pending = 1}, {}}};
    if (round % 2 == 0) {
      random.Fill(state, kVectors + 1);
    } else {
      random.Mutate(state);
    }
    if (!table->msix->Restore(state).ok()) {
      ASSERT_EQ(table->msix->Save(), fresh);
      continue;
    }
    ++taken;
    ASSERT_EQ(table->msix->Save(), state);
    for (int i = 0; i < 4; ++i) {
      table->SetVector(random.Below(5), random.Value<uint64_t>(), 1, random.Below(2) == 0);
      table->msix->SetControl(random.Below(4) != 0, random.Below(4) == 0);
    }
    ASSERT_EQ(table->msix->Check(table->msix->Save()), absl::OkStatus());
    table = std::make_unique<Table>(kVectors);
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace ringside
