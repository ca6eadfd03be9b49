// The bare-metal guest where Ringside cannot try it: on virtio-mmio, and on another VMM's idea of
// PCI, by QEMU's microvm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFile;

constexpr const char* kQemu = "/usr/bin/qemu-system-x86_64";

struct Bus {
  const char* name;
  const char* machine;
  const char* device;
};

class QemuGuestTest : public ::testing::TestWithParam<Bus> {
 protected:
  void SetUp() override {
    if (access("/dev/kvm", F_OK) != 0) GTEST_SKIP() << "there is no /dev/kvm on this host";
    if (access(kQemu, X_OK) != 0) GTEST_SKIP() << "there is no " << kQemu << " on this host";
  }
};

TEST_P(QemuGuestTest, DrivesEachQueuePolledAndByInterrupt) {
  const TempFile image(4 << 20);
  const ProcessResult run =
      RunProcess({kQemu,
                  "-M",
                  GetParam().machine,
                  "-accel",
                  "kvm",
                  "-cpu",
                  "host,-arch-capabilities",
                  "-smp",
                  "2",
                  "-m",
                  "256M",
                  "-nodefaults",
                  "-no-user-config",
                  "-no-reboot",
                  "-display",
                  "none",
                  "-serial",
                  "stdio",
                  "-device",
                  "isa-debug-exit,iobase=0xf4,iosize=4",
                  "-global",
                  "virtio-mmio.force-legacy=false",
                  "-drive",
                  absl::StrCat("if=none,id=disk,format=raw,file=", image.path()),
                  "-device",
                  absl::StrCat(GetParam().device, ",drive=disk,num-queues=2"),
                  "-kernel",
                  RINGSIDE_GUEST_ELF,
                  "-append",
                  "smp=2 queue-check=2 end=qemu"});
  EXPECT_THAT(run.output, HasSubstr(absl::StrCat("guest: disk 0 transport=", GetParam().name,
                                                 " queues=2 ok\n")))
      << run.errors;
  for (const char* queue : {"queue 0 processor=0", "queue 1 processor=1"}) {
    // More than fifty by interrupt; when polled, the one that QEMU sends whatever it is told.
    EXPECT_THAT(run.output, ContainsRegex(absl::StrCat(queue, " wait=irq interrupts=[0-9]{3}\n")));
    EXPECT_THAT(run.output, ContainsRegex(absl::StrCat(queue, " wait=poll interrupts=[01]\n")));
  }
  EXPECT_THAT(run.output, Not(HasSubstr("FAIL")));
}

INSTANTIATE_TEST_SUITE_P(
    , QemuGuestTest,
    ::testing::Values(Bus{"mmio", "microvm,acpi=off,pit=off,rtc=off", "virtio-blk-device"},
                      Bus{"pci", "microvm,pcie=on,pit=off,rtc=off", "virtio-blk-pci"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ringside
