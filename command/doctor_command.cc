#include "command/doctor_command.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/printable.h"
#include "base/status.h"
#include "command/exit_codes.h"
#include "kvm/kvm.h"
#include "poll/uring.h"
#include "vfio/pci_device.h"
#include "vfio/pci_sysfs.h"
#include "vfio/vfio_device.h"
#include "vmm/host_probe.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

// One line a finding, whatever a device calls itself; remembers whether any was bad.
class Report {
 public:
  void Good(const std::string& line) { Print("ok", line); }
  void Bad(const std::string& line) {
    Print("LACK", line);
    all_good_ = false;
  }
  // Works, but another way would be better.
  void Slow(const std::string& line) { Print("slow", line); }
  // Neither good nor bad: not everyone needs it.
  void Note(const std::string& line) { Print("--", line); }
  bool all_good() const { return all_good_; }

 private:
  static void Print(const char* mark, const std::string& line) {
    std::printf("  %-4s  %s\n", mark, Printable(line).c_str());
  }

  bool all_good_ = true;
};

void CheckCapabilities(const Kvm& kvm, Report& report) {
  int missing = 0;
  for (const RequiredCapability& capability : RequiredCapabilities()) {
    if (kvm.Extension(capability.number) > 0) continue;
    ++missing;
    report.Bad(absl::StrFormat("%s (%s); use a newer host kernel, or a host whose KVM offers it",
                               capability.name, capability.purpose));
  }
  if (missing == 0) {
    report.Good(
        absl::StrFormat("all %d KVM capabilities needed are there", RequiredCapabilities().size()));
  }
  report.Good(absl::StrFormat("up to %d vCPUs per machine",
                              std::min<int>(kvm.max_vcpus(), Machine::kMaxCpus)));
}

void CheckRing0(const Kvm& kvm, Report& report) {
  const absl::StatusOr<double> ns = MeasureRing0(kvm);
  if (!ns.ok()) {
    report.Bad(
        absl::StrFormat("a guest of four instructions does not run: %s; look for kvm in "
                        "'dmesg', and enable nesting if this is a virtual machine",
                        Message(ns.status())));
  } else if (*ns >= kRing0NativeNs) {
    report.Bad(
        absl::StrFormat("guest kernel mode is interpreted: %.0f ns per instruction, where "
                        "hardware needs less than 1; Linux will not finish booting here, so "
                        "use a host with VMX or SVM, or the lab (tools/lab)",
                        *ns));
  } else {
    report.Good(absl::StrFormat("guest kernel mode runs natively (%.2f ns per instruction)", *ns));
  }
}

void CheckDisks(Report& report) {
  if (const auto uring = Uring::Create(); uring.ok()) {
    report.Good("io_uring is there");
  } else {
    report.Slow(
        absl::StrFormat("%s; disks will use Linux AIO or threads", Message(uring.status())));
  }
}

std::string DescribeNvme(const PciSysfs& sysfs, const PciSysfsDevice& device) {
  // Known while the kernel's own driver has it.
  const std::string model = sysfs.Attribute(device.address, "nvme/*/model");
  const std::string group = device.iommu_group.has_value()
                                ? absl::StrFormat("IOMMU group %d", *device.iommu_group)
                                : "no IOMMU group";
  return absl::StrFormat("%s%s (%s, %s)", device.address, model.empty() ? "" : " " + model,
                         device.driver.empty() ? "no driver" : "driver " + device.driver, group);
}

void CheckNvme(Report& report) {
  const PciSysfs sysfs;
  const std::vector<PciSysfsDevice> devices = sysfs.OfClass(kNvmePciClass);
  if (devices.empty()) report.Note("no NVMe device");
  for (const PciSysfsDevice& device : devices) {
    const std::string what = DescribeNvme(sysfs, device);
    if (const absl::Status status = CheckVfioDevice(device.address); status.ok()) {
      report.Good(absl::StrFormat("%s: nvme://%s/1 can be used", what, device.address));
    } else {
      report.Note(absl::StrFormat("%s: nvme://%s/1 cannot be used: %s", what, device.address,
                                  Message(status)));
    }
  }
}

void CheckAssignable(Report& report) {
  const std::vector<PciSysfsDevice> devices = PciSysfs().OfDriver("vfio-pci");
  if (devices.empty()) report.Note("no device is bound to vfio-pci");
  for (const PciSysfsDevice& device : devices) {
    if (const absl::Status status = CheckVfioDevice(device.address); status.ok()) {
      report.Good(absl::StrFormat("--vfio %s can be used, if it has MSI-X", device.address));
    } else {
      report.Note(absl::StrFormat("--vfio %s cannot be used: %s", device.address, Message(status)));
    }
  }
}

}  // namespace

int DoctorCommand() {
  Report report;
  std::printf("KVM\n");
  const absl::StatusOr<Kvm> kvm = Kvm::Open();
  if (!kvm.ok()) {
    report.Bad(std::string(Message(kvm.status())));
  } else {
    report.Good("/dev/kvm is there and permitted");
    CheckCapabilities(*kvm, report);
    CheckRing0(*kvm, report);
  }
  std::printf("Disks\n");
  CheckDisks(report);
  std::printf("NVMe\n");
  CheckNvme(report);
  std::printf("Devices for a guest\n");
  CheckAssignable(report);
  std::printf(report.all_good() ? "This host runs Linux guests.\n"
                                : "This host does not run Linux guests as it is.\n");
  return report.all_good() ? kExitOk : kExitBadInput;
}

}  // namespace ringside
