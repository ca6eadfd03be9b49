// Descriptors that are sent along over sockets, and those that epolls of this process watch.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/socket.h>

namespace ringside::testing {

constexpr int kPassRights = 83;  // SO_PASSRIGHTS

// Since Linux 6.16 a socket may.
inline bool KernelRefusesDescriptors(int socket) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(socket, SOL_SOCKET, kPassRights, &value, &size) == 0;
}

// From now on all sockets of this process take descriptors, as on a kernel that cannot refuse them.
inline void HaveAllTakeDescriptors() {
  const int on = 1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    setsockopt(fd, SOL_SOCKET, kPassRights, &on, sizeof on);
  }
}

// How many.
inline size_t DescriptorsInEpolls() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream info(entry.path());
    for (std::string line; std::getline(info, line);) count += line.starts_with("tfd:") ? 1 : 0;
  }
  return count;
}

}  // namespace ringside::testing
