// The resolvers of names of a host, as its guests can use them.
//
// Threads: any. Errors: files that are not there name none.
#pragma once

#include <string>
#include <vector>

namespace ringside {

// Nothing where a guest is told what it needs by resolv.conf(5) at `path`. Where all resolvers
// there are the host's own, at its loopback, those that stand behind them, which systemd-resolved
// writes to `behind`.
std::vector<std::string> ResolversBehind(const std::string& path, const std::string& behind);

}  // namespace ringside
