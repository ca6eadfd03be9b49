#include "agent/guest/guest_init.h"

#include <array>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <linux/input.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent_fault.h"
#include "agent/guest/guest_system.h"

namespace ringside {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int kMostLooks = 60;
constexpr char kInputs[] = "/dev/input";

struct Mount {
  const char* type;
  const char* place;
  const char* sign;  // that is there where it is mounted
  unsigned long flags;
  const char* options;
};
constexpr std::array<Mount, 4> kMounts = {{
    {"proc", "/proc", "/proc/self", MS_NOSUID | MS_NODEV | MS_NOEXEC, ""},
    {"sysfs", "/sys", "/sys/kernel", MS_NOSUID | MS_NODEV | MS_NOEXEC, ""},
    {"devtmpfs", "/dev", "/dev/null", MS_NOSUID, "mode=0755"},
    {"devpts", "/dev/pts", "/dev/pts/ptmx", MS_NOSUID | MS_NOEXEC, "mode=0620,ptmxmode=0666"},
}};

bool HasPowerKey(int fd) {
  std::array<uint8_t, KEY_MAX / 8 + 1> keys = {};
  if (ioctl(fd, EVIOCGBIT(EV_KEY, keys.size()), keys.data()) < 0) return false;
  return (keys[KEY_POWER / 8] & (1U << (KEY_POWER % 8))) != 0;
}

UniqueFd FindButton() {
  UniqueFd found;
  DIR* const devices = opendir(kInputs);
  if (devices == nullptr) return found;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
  while (const dirent* const entry = readdir(devices)) {
    if (!std::string_view(entry->d_name).starts_with("event")) continue;
    const std::string path = std::string(kInputs) + "/" + entry->d_name;
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (fd.valid() && HasPowerKey(fd.get())) found = std::move(fd);
  }
  closedir(devices);
  return found;
}

}  // namespace

void MountBasics() {
  for (const Mount& each : kMounts) {
    if (access(each.sign, F_OK) == 0) continue;
    mkdir(each.place, 0755);
    if (mount(each.type, each.place, each.type, each.flags, each.options) != 0) {
      Say(AgentFault::Of(errno, "cannot mount", each.place).text);
    }
  }
}

GuestPowerButton::GuestPowerButton(bool is_wanted) {
  if (is_wanted) look_at_ns_ = GuestMonotonicNs();
}

void GuestPowerButton::Look(int64_t now_ns) {
  fd_ = FindButton();
  ++looks_;
  look_at_ns_.reset();
  if (!fd_.valid() && looks_ < kMostLooks) look_at_ns_ = now_ns + kSecond;
}

bool GuestPowerButton::WasPressed(int64_t now_ns) {
  if (look_at_ns_ && *look_at_ns_ <= now_ns) Look(now_ns);
  bool was_pressed = false;
  input_event event;
  ssize_t got;
  while ((got = read(fd_.get(), &event, sizeof event)) == sizeof event) {
    was_pressed |= event.type == EV_KEY && event.code == KEY_POWER && event.value == 1;
  }
  if (got < 0 && errno == ENODEV) fd_ = UniqueFd();
  return was_pressed;
}

}  // namespace ringside
