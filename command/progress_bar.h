// How far a command's work has come, as a bar on a terminal; nothing where stderr is none.
//
// Threads: that of the work.
#pragma once

#include <cstdint>
#include <string>

#include "image/progress.h"

namespace ringside {

class ProgressBar final : public Progress {
 public:
  explicit ProgressBar(int fd);
  ~ProgressBar() override;  // takes it away again, so that what is said next has the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Begin(const char* what, uint64_t bytes) override;
  void At(uint64_t bytes) override;

  // "copying: [##########          ]  50% of 2G"
  static std::string Line(const char* what, uint64_t done, uint64_t bytes);

 private:
  void Draw();
  void Say(const std::string& text) const;

  const int fd_;
  const bool is_terminal_;
  const char* what_ = "";
  uint64_t bytes_ = 0, done_ = 0;
  int64_t drawn_ns_ = 0;
  bool is_there_ = false;
};

}  // namespace ringside
