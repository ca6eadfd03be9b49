#include "tools/doctor_command.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/status.h"
#include "poll/uring.h"
#include "tools/exit_codes.h"
#include "vmm/host_probe.h"
#include "vmm/kvm.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

// One line a finding; remembers whether any was bad.
class Report {
 public:
  void Good(const std::string& line) { std::printf("  ok    %s\n", line.c_str()); }
  void Bad(const std::string& line) {
    std::printf("  LACK  %s\n", line.c_str());
    all_good_ = false;
  }
  // Works, but another way would be better.
  void Slow(const std::string& line) { std::printf("  slow  %s\n", line.c_str()); }
  bool all_good() const { return all_good_; }

 private:
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
  report.Good(absl::StrFormat("up to %d vCPUs a machine",
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
        absl::StrFormat("guest kernel mode is interpreted: %.0f ns an instruction, where "
                        "hardware needs less than 1; Linux will not finish booting here, so "
                        "use a host with VMX or SVM, or the lab (tools/lab)",
                        *ns));
  } else {
    report.Good(absl::StrFormat("guest kernel mode runs natively (%.2f ns an instruction)", *ns));
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
  std::printf(report.all_good() ? "This host runs Linux guests.\n"
                                : "This host does not run Linux guests as it is.\n");
  return report.all_good() ? kExitOk : kExitBadInput;
}

}  // namespace ringside
