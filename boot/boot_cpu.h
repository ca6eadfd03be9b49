// The first vCPU's state at the kernel's first instruction, for both boot protocols. What is
// vendor-specific about it stays here.
#pragma once

#include "absl/status/status.h"
#include "boot/boot.h"
#include "devices/guest_memory.h"
#include "kvm/kvm.h"

namespace ringside {

// Descriptor table and identity map of the first 4 GiB, at kBootGdt and kBootPageTables.
void WriteBootTables(const GuestMemory& memory);

// Code at kResetVector that resets the machine through kResetPort. Linux gets there on reboot: on a
// hardware-reduced machine it tries EFI first, and without one jumps to the BIOS in real mode
// (arch/x86/kernel/reboot.c), never touching the FADT's reset register.
void WriteResetVector(const GuestMemory& memory);

// Registers of the vCPU that enters the kernel. The others wait for INIT and SIPI as KVM made them.
absl::Status SetBootRegisters(KvmVcpu& vcpu, const BootEntry& entry);

// Model-specific registers that firmware would have set, on every vCPU. Returns how many of them
// this host refuses: a guest boots without.
absl::StatusOr<int> SetBootMsrs(KvmVcpu& vcpu);

}  // namespace ringside
