// libFuzzer: any bytes as a guest's accesses to configuration space, through both mechanisms, on a
// host with three functions. After each the promises of tests/support/devices/pci_model.h must
// hold. Any bytes are accesses, so this target needs no seeds.
#include <cstdio>
#include <cstring>

#include "tests/fuzz/config_access.h"
#include "tests/support/devices/pci_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  testing::PciModel model;
  // On from the start: of what is off there is little to find.
  for (uint32_t device = 1; device <= 3; ++device) {
    testing::WriteAs<uint8_t>(model.host.ecam(), device << 15 | 4, 2);
  }
  for (size_t at = 0; size - at >= sizeof(testing::ConfigAccess);
       at += sizeof(testing::ConfigAccess)) {
    testing::ConfigAccess access;
    std::memcpy(&access, data + at, sizeof access);
    // Three functions and the bridge, and seldom something that is not there.
    if (access.device >= 8) access.device %= 4;
    if ((access.value & 7) != 0) access.function = 0;
    access.Do(model.host);
    if (const std::string what = model.Broken(); !what.empty()) {
      std::fprintf(stderr, "broken promise: %s\n", what.c_str());
      __builtin_trap();
    }
  }
  return 0;
}
