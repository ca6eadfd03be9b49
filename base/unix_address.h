// Where a Unix socket is, also where its path is longer than an address holds: unix(7) has 107
// bytes for it. Such a path is named through a descriptor of its directory.
#pragma once

#include <string>
#include <sys/socket.h>
#include <sys/un.h>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ringside {

// address() is for use at once. directory() and name() hold for as long as this lives, also where
// the process changes its directory.
class UnixAddress {
 public:
  static absl::StatusOr<UnixAddress> Of(const std::string& path);

  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return sizeof address_; }
  int directory() const { return directory_.get(); }
  const std::string& name() const { return name_; }  // in the directory

 private:
  UnixAddress(UniqueFd directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}

  sockaddr_un address_{.sun_family = AF_UNIX};
  UniqueFd directory_;
  std::string name_;
};

}  // namespace ringside
