#include "command/doctor_command.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "advice/disk_advice.h"
#include "base/affinity.h"
#include "base/number_list.h"
#include "base/printable.h"
#include "base/status.h"
#include "command/disk_doctor.h"
#include "command/exit_codes.h"
#include "command/passt.h"
#include "command/standard_output.h"
#include "kvm/kvm.h"
#include "net/tap.h"
#include "net/vhost_net.h"
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

void CheckNetworks(Report& report) {
  if (const absl::Status status = Tap::CheckHost(); status.ok()) {
    report.Good(
        "--net tap=NAME can be used with a tap of this user's; making one takes "
        "CAP_NET_ADMIN");
  } else {
    report.Note(absl::StrFormat("--net tap=NAME cannot be used: %s", Message(status)));
  }
  if (const absl::Status status = VhostNet::CheckHost(); status.ok()) {
    report.Good("--net tap=NAME,vhost=on can be used: the kernel has vhost-net");
  } else {
    report.Note(absl::StrFormat("--net tap=NAME,vhost=on cannot be used: %s", Message(status)));
  }
  if (Passt::IsInstalled()) {
    report.Good("--net user can be used: passt is installed");
  } else {
    report.Note("--net user cannot be used: install Debian's package 'passt'");
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

// Of an option; empty if it is not given.
absl::StatusOr<std::vector<int>> ReadList(const char* option, std::string text, char between,
                                          const char* example) {
  if (text.empty()) return std::vector<int>();
  const std::string given = text;
  if (between != '+') std::ranges::replace(text, between, '+');
  if (auto numbers = ParseNumberList(text)) return *std::move(numbers);
  return BadInput("--%s '%s' is not a list, for example %s", option, given, example);
}

absl::StatusOr<bool> ReportDisk(const DoctorOptions& options) {
  Placement placement;
  RINGSIDE_ASSIGN_OR_RETURN(placement.io_thread_cpus,
                            ReadList("iothread-cpu", options.io_thread_cpus, '+', "0-2+5"));
  RINGSIDE_RETURN_IF_ERROR(CheckHostCpus(placement.io_thread_cpus));
  RINGSIDE_ASSIGN_OR_RETURN(placement.memory_nodes,
                            ReadList("memory-node", options.memory_nodes, ',', "0,2-3"));
  RINGSIDE_ASSIGN_OR_RETURN(const DiskFacts facts, ReadDiskFacts(options.disk));
  RINGSIDE_RETURN_IF_ERROR(CheckHostNodes(placement.memory_nodes, 0, facts.nodes));
  const Findings findings = DiskAdvice(facts, placement);
  RINGSIDE_RETURN_IF_ERROR(WriteToStdout(options.json ? DiskFindingsJson(options.disk, findings)
                                                      : DiskFindingsText(options.disk, findings)));
  return IsSound(findings);
}

int DiskDoctor(const DoctorOptions& options, LogSink& log) {
  const absl::StatusOr<bool> sound = ReportDisk(options);
  if (!sound.ok()) return Finish(sound.status(), log);
  return *sound ? kExitOk : kExitBadInput;
}

absl::Status CheckIsAboutTheHost(const DoctorOptions& options) {
  if (!options.json && options.io_thread_cpus.empty() && options.memory_nodes.empty()) {
    return absl::OkStatus();
  }
  return BadInput("--json, --iothread-cpu and --memory-node are about a disk: give --disk PATH");
}

}  // namespace

int DoctorCommand(const DoctorOptions& options, LogSink& log) {
  if (!options.disk.empty()) return DiskDoctor(options, log);
  if (const absl::Status wrong = CheckIsAboutTheHost(options); !wrong.ok()) {
    return Finish(wrong, log);
  }
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
  std::printf("Networks\n");
  CheckNetworks(report);
  std::printf("NVMe\n");
  CheckNvme(report);
  std::printf("Devices for a guest\n");
  CheckAssignable(report);
  std::printf(report.all_good() ? "This host runs Linux guests.\n"
                                : "This host does not run Linux guests as it is.\n");
  return report.all_good() ? kExitOk : kExitBadInput;
}

}  // namespace ringside
