#include "command/fork_output.h"

#include <algorithm>
#include <limits.h>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "command/line_writer.h"

namespace ringside {
namespace {

// PIPE_BUF bytes are written without those of another process in between (pipe(7)).
constexpr size_t kMostAtOnce = PIPE_BUF;
// So much of a guest's line is looked at at once: made printable it may have four times as many.
constexpr size_t kMostOfLine = 4 * kMostAtOnce;

std::string Shown(std::string_view line) {
  std::string shown;
  while (true) {
    const size_t tab = std::min(line.find('\t'), line.size());
    shown += Printable(line.substr(0, tab));
    if (tab == line.size()) return shown;
    shown += '\t';
    line.remove_prefix(tab + 1);
  }
}

// As much of the text as has at most so many bytes, and whole characters of it (RFC 3629).
std::string_view Piece(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  size_t length = most;
  while (most - length < 3 && (static_cast<uint8_t>(text[length]) & 0xc0) == 0x80) --length;
  return text.substr(0, length);
}

// Lines that are written together as long as they fit.
class Batch {
 public:
  Batch(int fd, uint32_t number) : fd_(fd), prefix_(absl::StrFormat("[%d] ", number)) {}

  void Add(std::string_view shown) {
    do {
      const std::string_view piece = Piece(shown, kMostAtOnce - prefix_.size() - 1);
      if (lines_.size() + prefix_.size() + piece.size() + 1 > kMostAtOnce) Flush();
      absl::StrAppend(&lines_, prefix_, absl::string_view(piece.data(), piece.size()), "\n");
      shown.remove_prefix(piece.size());
    } while (!shown.empty());
  }
  int Flush() {
    if (error_ == 0) error_ = WriteAll(fd_, lines_);
    lines_.clear();
    return error_;
  }

 private:
  const int fd_;
  const std::string prefix_;
  std::string lines_;
  int error_ = 0;
};

}  // namespace

int ForkOutput::Write(int fd, uint32_t number, std::string_view text) {
  const std::scoped_lock lock(mutex_);
  Batch batch(fd, number);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Piece(text.substr(0, end), kMostOfLine);
    batch.Add(Shown(line));
    text.remove_prefix(std::min(line.size() + (line.size() == end ? 1 : 0), text.size()));
  }
  return batch.Flush();
}

}  // namespace ringside
