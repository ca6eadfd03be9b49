#include "command/serial_option.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "base/status.h"
#include "command/key_value.h"

namespace ringside {
namespace {

struct FileOption {
  std::string path;
  uint64_t limit = kSerialFileLimit;
  bool truncate = false;
};

absl::StatusOr<FileOption> ParseFile(const std::string& text) {
  RINGSIDE_ASSIGN_OR_RETURN(
      const std::vector<KeyValue> fields,
      ParseKeyValues("--serial", text, "a comma in a path is written twice, such as file=a,,b: "));
  FileOption file;
  for (const auto& [key, value] : fields) {
    if (key == "file" && !value.empty()) {
      file.path = value;
    } else if (key == "limit") {
      const absl::StatusOr<uint64_t> limit = ParseSize(value);
      if (!limit.ok()) return BadInput("--serial limit %s", Message(limit.status()));
      file.limit = *limit;
    } else if (key == "truncate" && (value == "on" || value == "off")) {
      file.truncate = value == "on";
    } else {
      return BadInput("--serial '%s=%s' cannot be; give file=PATH[,limit=SIZE][,truncate=on]", key,
                      value);
    }
  }
  return file;
}

// O_NONBLOCK: a FIFO that nobody reads must not hold up the start.
absl::StatusOr<UniqueFd> OpenFile(const FileOption& file) {
  // Such a device knows no appending: its first sectors would be lost.
  if (struct stat found; stat(file.path.c_str(), &found) == 0 && S_ISBLK(found.st_mode)) {
    return BadInput("--serial '%s' is a block device, which would be overwritten; give a file",
                    file.path);
  }
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  UniqueFd fd(open(file.path.c_str(), kFlags, 0666));
  if (fd.valid()) return fd;
  const int error = errno;
  const absl::Status status =
      ErrnoError(error, absl::StrFormat("--serial cannot write '%s'", file.path),
                 error == ENXIO ? "start first what reads it" : "");
  return absl::InvalidArgumentError(status.message());  // whatever the cause: the user's to mend
}

}  // namespace

absl::Status SerialOption::CheckIsNot(const char* what, const std::string& path) const {
  struct stat own, other;
  if (!file.valid() || fstat(file.get(), &own) != 0 || !S_ISREG(own.st_mode) ||
      stat(path.c_str(), &other) != 0 || own.st_dev != other.st_dev || own.st_ino != other.st_ino) {
    return absl::OkStatus();
  }
  return BadInput("--serial '%s' is %s too, '%s', and would be written into; give another file",
                  config.output_name, what, path);
}

absl::Status SerialOption::Begin() const {
  if (!truncates || ftruncate(file.get(), 0) == 0) return absl::OkStatus();
  return ErrnoError(errno, absl::StrFormat("--serial cannot empty '%s'", config.output_name));
}

absl::StatusOr<SerialOption> OpenSerial(const std::string& text) {
  SerialOption serial;
  if (text == "none") return serial;
  if (text == "stdio") {
    serial.config.input_fd = STDIN_FILENO;
    serial.config.output_fd = STDOUT_FILENO;
    serial.on_stdio = true;
    return serial;
  }
  if (!text.starts_with("file=")) {
    return BadInput("--serial '%s' is unknown; give stdio, file=PATH or none", text);
  }
  RINGSIDE_ASSIGN_OR_RETURN(const FileOption file, ParseFile(text));
  RINGSIDE_ASSIGN_OR_RETURN(serial.file, OpenFile(file));
  serial.config.output_fd = serial.file.get();
  serial.config.output_name = file.path;
  serial.config.output_limit = file.limit;
  struct stat info;
  serial.truncates = file.truncate && fstat(serial.file.get(), &info) == 0 && S_ISREG(info.st_mode);
  return serial;
}

}  // namespace ringside
