// The checks main.cc runs when the command line asks for them. Each prints its results and, on
// finding something wrong, a line "guest: FAIL what: expected X got Y"; all of them return.

#ifndef RINGSIDE_TESTS_GUEST_CHECKS_H_
#define RINGSIDE_TESTS_GUEST_CHECKS_H_

#include <cstdint>
#include <string_view>

#include "boot_info.h"
#include "command_line.h"

namespace guest {

// memory_checks.cc
void SayMemoryMap(const BootInfo& info);
void SayInitrd(const BootInfo& info);
void SayRsdp(const BootInfo& info);
void CheckHighMemory(const BootInfo& info);
void CheckUnmapped();

// serial_checks.cc: the first two wait for ever for someone to type; Keep and Beat never return.
void CheckEcho();
void CheckSerialInterrupt();
void Keep();
void Touch(uint64_t pages);  // once somebody has typed
void Beat(uint64_t period_us, uint64_t written_mib);

// cpu_checks.cc
void SayCpuid();
void CheckProcessors(uint64_t count);

// timer_checks.cc
void SayTimer();

// power_checks.cc: the first waits for ever for the power button.
void AwaitButton();
void Panic(uint64_t times);

// disk_checks.cc
void CheckDisks(uint64_t seed);
void VerifyDisks(uint64_t seed);
void CheckErrors(uint64_t reads);

// queue_checks.cc
void CheckQueues(uint64_t seed, uint64_t queues);

// record_checks.cc. The first `required` records must be there.
void WriteRecords(uint64_t seed);
void CheckRecords(uint64_t seed, uint64_t required);

// assigned_checks.cc
void CheckAssigned();

// entropy_checks.cc
void CheckEntropy();

// net_checks.cc
void CheckNetworks(const CommandLine& command_line, uint64_t pairs);

// hostile_checks.cc
void CheckHostile(std::string_view name);

// hostile_net_checks.cc
void CheckHostileNet(const CommandLine& command_line, std::string_view name);

// hostile_vsock_checks.cc
void CheckHostileVsock(std::string_view name, uint64_t seed);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_CHECKS_H_
