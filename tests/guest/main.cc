// The test guest: says how it was booted and what it was given, runs the checks its command line
// asks for, and ends the way the command line says. The words are:
//
//   high=1      RAM above 4 GiB and below 3 GiB keeps what is written to it
//   unmapped=1  ports and addresses nobody claims read as all ones
//   echo=1      echoes COM1 until newline, polled
//   irq=1       receives one character from COM1 by interrupt
//   beat=N      says a byte every N us for good, the first behind the line "guest: beats"; before
//               that it writes to each page of written=N MiB
//   keep=1      keeps a number that is typed to it, and says it at each end of a line, for good
//   touch=N     waits for a character, writes to N pages, and says how long that took
//   cpuid=1     prints CPUID leaves
//   pit=1       says whether an interval timer counts
//   panics=N    says at pvpanic's port N times that it has crashed, which it has not
//   button=1    waits until its power button is pressed
//   smp=N       starts N - 1 application processors, which take interrupts in ring 3 and then stay
//               there
//   disk=1      checks every virtio-blk disk, and leaves the pattern of seed=N (default 1) on the
//               first sectors of those that can be written
//   queue-check=N  the pattern of seed=N through each of N queues of every disk, queue i on
//               processor i if smp= has started that
//   transport=HOW  pci or mmio: keeps from looking for devices on the other
//   virtio_mmio.device=SIZE@ADDRESS:IRQ  as VMMs append it for each virtio-mmio device
//   verify-disk=N  checks that the pattern of seed N is on every disk
//   disk-errors=N  N reads of each disk, one after the other, are all answered with an error
//   records=1   writes numbered records (record.h) with flushes between them to the first writable
//               disk until it is full; "durable K" says that all up to K are acknowledged
//   check-records=1  counts the whole records there; those from 0 to durable=K must be
//   entropy=1   takes random bytes from the virtio entropy device, and leaves that in use
//   net-check=N echoes through each of N pairs of queues of every network, every byte checked;
//               its control queue; net-own= and net-host= are the addresses (net_job.h)
//   assigned=1  uses the PCI device of tests/support/vfio/fake_pci_device.h, given to it whole
//   hostile=NAME  breaks the rules on the first disk, one on PCI (hostile_checks.cc), then uses it
//               as it should; NAME may be "all"
//   hostile-net=NAME  the same on the first network, on either transport (hostile_net.h)
//   hostile-vsock=NAME  the same on the first vsock, at random from seed= on (hostile_vsock.h)
//   rw=HOW      measures the first disk; the other words are in job.h
//   net=HOW     measures the first network; the other words are in net_job.h
//   vsock=HOW   measures the first vsock; the other words are in vsock_job.h
//   end=HOW     poweroff (default), reset, triple, internal, halt, spin, qemu
//
// boot.S gets here from either entry point, in 64-bit mode at CPL 3 on the bootstrap processor.

#include "allocator.h"
#include "boot_info.h"
#include "checks.h"
#include "command_line.h"
#include "console.h"
#include "end.h"
#include "interrupts.h"
#include "machine.h"
#include "measure.h"
#include "measure_net.h"
#include "measure_vsock.h"
#include "virtio_search.h"

namespace guest {
namespace {

constinit BootInfo boot_info;

void SayWhatWasGiven(BootProtocol protocol) {
  Say("entry=", protocol == BootProtocol::kPvh ? "pvh" : "linux64",
      " cpl=", Decimal{CurrentPrivilegeLevel()}, " cmdline=\"", boot_info.command_line(), "\"");
  SayMemoryMap(boot_info);
  SayInitrd(boot_info);
  SayRsdp(boot_info);
}

void RunChecks(const CommandLine& command_line) {
  if (command_line.IsOn("high")) CheckHighMemory(boot_info);
  if (command_line.IsOn("unmapped")) CheckUnmapped();
  if (command_line.IsOn("echo")) CheckEcho();
  if (command_line.IsOn("irq")) CheckSerialInterrupt();
  if (command_line.IsOn("cpuid")) SayCpuid();
  if (command_line.IsOn("pit")) SayTimer();
  const uint64_t panics = command_line.GetNumber("panics", 0);
  if (panics > 0) Panic(panics);
  const uint64_t processors = command_line.GetNumber("smp", 0);
  if (processors > 0) CheckProcessors(processors);
  if (command_line.IsOn("entropy")) CheckEntropy();
  const uint64_t seed = command_line.GetNumber("seed", 1);
  if (command_line.IsOn("disk")) CheckDisks(seed);
  const uint64_t queues = command_line.GetNumber("queue-check", 0);
  if (queues > 0) CheckQueues(seed, queues);
  if (!command_line.Get("verify-disk").empty()) {
    VerifyDisks(command_line.GetNumber("verify-disk", seed));
  }
  const uint64_t errors = command_line.GetNumber("disk-errors", 0);
  if (errors > 0) CheckErrors(errors);
  if (command_line.IsOn("records")) WriteRecords(seed);
  if (command_line.IsOn("check-records")) {
    const bool required = !command_line.Get("durable").empty();
    CheckRecords(seed, required ? command_line.GetNumber("durable", 0) + 1 : 0);
  }
  const uint64_t pairs = command_line.GetNumber("net-check", 0);
  if (pairs > 0) CheckNetworks(command_line, pairs);
  if (command_line.IsOn("assigned")) CheckAssigned();
  const std::string_view hostile = command_line.Get("hostile");
  if (!hostile.empty()) CheckHostile(hostile);
  const std::string_view hostile_net = command_line.Get("hostile-net");
  if (!hostile_net.empty()) CheckHostileNet(command_line, hostile_net);
  const std::string_view hostile_vsock = command_line.Get("hostile-vsock");
  if (!hostile_vsock.empty()) CheckHostileVsock(hostile_vsock, seed);
  Measure(command_line);
  MeasureNet(command_line);
  MeasureVsock(command_line);
  if (command_line.IsOn("button")) AwaitButton();
  if (command_line.IsOn("keep")) Keep();
  const uint64_t pages = command_line.GetNumber("touch", 0);
  if (pages > 0) Touch(pages);
  const uint64_t beat_us = command_line.GetNumber("beat", 0);
  if (beat_us > 0) Beat(beat_us, command_line.GetNumber("written", 0));
}

}  // namespace

// `structure` is the physical address of what the boot protocol hands over.
extern "C" [[noreturn]] void GuestMain(uint64_t structure, BootProtocol protocol) {
  InitInterrupts();
  InitConsole();
  boot_info.Read(protocol, structure);
  InitAllocator(boot_info);
  const CommandLine command_line(boot_info.command_line());
  SayWhatWasGiven(protocol);
  ChooseEnd(command_line.Get("end", "poweroff"));
  ChooseTransports(command_line);
  RunChecks(command_line);
  End();
}

}  // namespace guest
