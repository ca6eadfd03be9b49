#include "command/serial_port.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bad_input_errno.h"
#include "base/status.h"
#include "block/block_backend.h"
#include "faults/disk_filters.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

// O_NONBLOCK: a FIFO that nobody reads must not hold up the start.
absl::StatusOr<UniqueFd> OpenFile(const std::string& path) {
  // Such a device knows no appending: its first sectors would be lost.
  if (struct stat found; stat(path.c_str(), &found) == 0 && S_ISBLK(found.st_mode)) {
    return BadInput("--serial '%s' is a block device, which would be overwritten: give a file",
                    path);
  }
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  UniqueFd fd(open(path.c_str(), kFlags, 0666));
  if (fd.valid()) return fd;
  const int error = errno;
  return BadInputErrno(error, absl::StrFormat("--serial cannot write '%s'", path),
                       error == ENXIO ? "start first what reads it" : "");
}

}  // namespace

absl::Status SerialPort::CheckIsNot(const char* what, const std::string& path) const {
  struct stat own, other;
  if (!file.valid() || fstat(file.get(), &own) != 0 || !S_ISREG(own.st_mode) ||
      stat(path.c_str(), &other) != 0 || own.st_dev != other.st_dev || own.st_ino != other.st_ino) {
    return absl::OkStatus();
  }
  return BadInput("--serial '%s' is %s too, '%s', and would be written into; give another file",
                  config.output_name, what, path);
}

absl::Status SerialPort::CheckIsNoneOf(const MachineConfig& config,
                                       const std::string& snapshot) const {
  RINGSIDE_RETURN_IF_ERROR(CheckIsNot("the kernel", config.kernel));
  RINGSIDE_RETURN_IF_ERROR(CheckIsNot("the initrd", config.initrd));
  if (!snapshot.empty()) {
    RINGSIDE_RETURN_IF_ERROR(CheckIsNot("the snapshot's memory", MemoryPath(snapshot)));
    RINGSIDE_RETURN_IF_ERROR(CheckIsNot("the snapshot's state", StatePath(snapshot)));
  }
  for (const DiskConfig& disk : config.disks) {
    for (const std::string& file : WithFilters(disk).Describe().files) {
      RINGSIDE_RETURN_IF_ERROR(CheckIsNot("a disk", file));
    }
  }
  return absl::OkStatus();
}

absl::Status SerialPort::Begin() const {
  if (!truncates || ftruncate(file.get(), 0) == 0) return absl::OkStatus();
  return ErrnoError(errno, absl::StrFormat("--serial cannot empty '%s'", config.output_name));
}

absl::StatusOr<SerialPort> OpenSerial(const SerialOptions& options) {
  SerialPort serial;
  switch (options.target) {
    case SerialOptions::Target::kNone:
      return serial;
    case SerialOptions::Target::kStdio:
      serial.config.input_fd = STDIN_FILENO;
      serial.config.output_fd = STDOUT_FILENO;
      serial.on_stdio = true;
      return serial;
    case SerialOptions::Target::kFile:
      break;
  }
  RINGSIDE_ASSIGN_OR_RETURN(serial.file, OpenFile(options.file));
  serial.config.output_fd = serial.file.get();
  serial.config.output_name = options.file;
  serial.config.output_limit = options.limit;
  struct stat info;
  serial.truncates =
      options.truncate && fstat(serial.file.get(), &info) == 0 && S_ISREG(info.st_mode);
  return serial;
}

}  // namespace ringside
