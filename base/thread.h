// Threads of the library: named, and with every signal blocked but those that a fault of the thread
// itself raises, so that the embedder's handlers run on the embedder's own threads.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace ringside {

// `name`, which `body` finds its thread has, is cut to the 15 characters Linux shows.
absl::StatusOr<std::thread> StartThread(const std::string& name, std::function<void()> body);

}  // namespace ringside
