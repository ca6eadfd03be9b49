#include "command/progress_bar.h"

#include <algorithm>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/size.h"

namespace ringside {
namespace {

constexpr int kColumns = 40;
constexpr int64_t kBetweenNs = 100'000'000;  // more often than this nobody sees
constexpr char kEraseLine[] = "\r\033[K";

}  // namespace

ProgressBar::ProgressBar(int fd) : fd_(fd), is_terminal_(isatty(fd) == 1) {}

ProgressBar::~ProgressBar() {
  if (is_there_) Say(kEraseLine);
}

std::string ProgressBar::Line(const char* what, uint64_t done, uint64_t bytes) {
  const double share =
      bytes == 0 ? 1 : static_cast<double>(std::min(done, bytes)) / static_cast<double>(bytes);
  const std::string bar(static_cast<size_t>(share * kColumns), '#');
  return absl::StrFormat("%s: [%-*s] %3d%% of %s", what, kColumns, bar,
                         static_cast<int>(share * 100), FormatSize(bytes));
}

void ProgressBar::Begin(const char* what, uint64_t bytes) {
  what_ = what;
  bytes_ = bytes;
  done_ = 0;
  Draw();
}

void ProgressBar::At(uint64_t bytes) {
  done_ = bytes;
  if (MonotonicNs() - drawn_ns_ >= kBetweenNs) Draw();
}

void ProgressBar::Draw() {
  if (!is_terminal_) return;
  is_there_ = true;
  drawn_ns_ = MonotonicNs();
  Say(kEraseLine + Line(what_, done_, bytes_));
}

// A terminal that takes nothing is no reason not to go on.
void ProgressBar::Say(const std::string& text) const {
  if (write(fd_, text.data(), text.size()) < 0) return;
}

}  // namespace ringside
