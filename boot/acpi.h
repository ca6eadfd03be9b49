// ACPI tables of a hardware-reduced machine: how a guest learns of its CPUs, interrupt controllers,
// PCI configuration window, serial port and power button, and how to power off and reset.
// Spec: ACPI 6.5 section 5.2; section numbers stand beside each table.
#pragma once

#include <cstdint>

#include "devices/guest_memory.h"

namespace ringside {

// Writes all tables from kAcpiTables up and returns the address of the RSDP. `cpus` is 1 to 254,
// with APIC ids 0 to cpus - 1.
uint64_t WriteAcpiTables(uint32_t cpus, const GuestMemory& memory);

}  // namespace ringside
