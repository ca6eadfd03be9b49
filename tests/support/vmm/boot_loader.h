// LoadKernel with files from memory.
#pragma once

#include <optional>
#include <string>

#include "boot/boot.h"
#include "tests/support/vmm/image_builder.h"

namespace ringside {

struct TestLoader {
  explicit TestLoader(Bytes kernel_content) : kernel(std::move(kernel_content)) {}

  absl::StatusOr<BootEntry> Load(const GuestMemory& memory) const {
    const BootFile kernel_file = MakeBootFile(kernel);
    std::optional<BootFile> initrd_file;
    if (!initrd.empty()) initrd_file = MakeBootFile(initrd, "initrd");
    return LoadKernel({.kernel = kernel_file,
                       .initrd = initrd_file.has_value() ? &*initrd_file : nullptr,
                       .command_line = command_line,
                       .protocol = protocol,
                       .acpi_rsdp = acpi_rsdp},
                      memory);
  }

  Bytes kernel;
  Bytes initrd;  // empty: none
  std::string command_line;
  BootProtocol protocol = BootProtocol::kAuto;
  uint64_t acpi_rsdp = 0;
};

}  // namespace ringside
