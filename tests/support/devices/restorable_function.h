// A virtio-pci function with its device and its host bridge, which can be saved, and be restored
// into another one that is new.
#pragma once

#include "devices/pci_host.h"
#include "tests/support/devices/random_state.h"
#include "tests/support/devices/virtio_pci_fixture.h"

namespace ringside::testing {

class RestorableFunction final : public VirtioPciFixture {
 public:
  static constexpr uint64_t kBarPlace = 0xc0100000;
  static constexpr uint64_t kMessage = 0xfee01000;

  struct Saved {
    PciHost::State host;
    VirtioPci::State pci;
    bool operator==(const Saved&) const = default;
  };

  using VirtioPciFixture::Config;
  using VirtioPciFixture::EnableMsix;
  using VirtioPciFixture::Get;
  using VirtioPciFixture::kConfigVector;
  using VirtioPciFixture::kDeviceFeatureSelect;
  using VirtioPciFixture::kDriverFeatureSelect;
  using VirtioPciFixture::kQueueSelect;
  using VirtioPciFixture::kQueueVector;
  using VirtioPciFixture::kStatus;
  using VirtioPciFixture::Run;
  using VirtioPciFixture::Set;
  using VirtioPciFixture::SetConfig;
  using VirtioPciFixture::SetWindow;
  using VirtioPciFixture::window_data;

  RestorableFunction() { added_ = host_.Add(*pci_).ok(); }
  ~RestorableFunction() override { pci_->transport().ResetAndWait(); }

  VirtioPci& pci() { return *pci_; }
  FakeVirtioDevice& device() { return device_; }
  FakePciPlatform& platform() { return platform_; }
  FakePciPlatform::Vector& vector(size_t index) { return *platform_.vectors[index]; }
  IoHandler& bar() { return *bar_; }
  Bus& memory() { return memory_; }

  // As a driver does, with its BAR where it wants it.
  void MapBar() {
    WriteAs<uint32_t>(host_.ecam(), kSlot | 0x10, static_cast<uint32_t>(kBarPlace));
    WriteAs<uint16_t>(host_.ecam(), kSlot | 0x04, 6);
  }
  void SetMessage(uint64_t index, uint32_t data, bool masked) {
    const uint64_t entry = VirtioPci::kTablePage + 16 * index;
    WriteAs<uint64_t>(*bar_, entry, kMessage);
    WriteAs<uint64_t>(*bar_, entry + 8, uint64_t{masked} << 32 | data);
  }
  // A driver with queue 1 on vector 2 and a masked vector 3 for the configuration.
  void RunWithVectors() {
    MapBar();
    EnableMsix(true);
    SetMessage(2, 0x42, false);
    SetMessage(3, 0x43, true);
    Run();
    Set<uint16_t>(kQueueVector, 2);  // Run has selected queue 1
    Set<uint16_t>(kConfigVector, 3);
  }

  Saved Save() { return {.host = host_.Save(), .pci = *pci_->Save()}; }
  absl::Status Restore(const Saved& saved) {
    RINGSIDE_RETURN_IF_ERROR(host_.Check(saved.host));
    RINGSIDE_RETURN_IF_ERROR(pci_->Restore(saved.pci));
    return host_.Restore(saved.host);
  }
  // As a driver that does anything.
  void Use(RandomState& random) {
    for (int i = 0; i < 4; ++i) {
      const uint64_t at = random.Below(VirtioPci::kBarSize / 4096) * 4096 + 4 * random.Below(20);
      WriteAs<uint32_t>(*bar_, at, random.Value<uint32_t>());
      ReadAs<uint64_t>(*bar_, at);
      const auto offset = static_cast<uint32_t>(random.Below(PciFunction::kConfigSize));
      SetConfig<uint8_t>(offset, random.Value<uint8_t>());
      Config<uint32_t>(offset);
    }
  }
  bool added() const { return added_; }

 private:
  static constexpr uint32_t kSlot = 1 << 15;  // in ECAM

  void TestBody() override {}

  Bus memory_;
  PciHost host_{memory_, 0xc0000000, 0x10000000};
  bool added_;
};

}  // namespace ringside::testing
