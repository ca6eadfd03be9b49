// An I/O thread's ring, used as the disk channel does: push, submit and sleep in one call, reap.
//
//   micro_benchmark --benchmark_filter=uring
//
// An operation is one read; `depth` of them go together, and the next ones start when all are back.
// `enters` are io_uring_enter calls an operation. Reads are of /dev/null (nothing but the ring: a
// NOP, which the ring's restrictions forbid, would be no less), of 4 KiB from tmpfs (which the
// kernel hands to a worker thread) and of 4 KiB from a file with O_DIRECT, beside this program. The
// instructions are this side's of the ring alone, so they hardly differ; the time is the kernel's.
#include <array>
#include <benchmark/benchmark.h>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "benchmarks/support/measure.h"
#include "poll/uring.h"

namespace ringside::benchmarks {
namespace {

struct alignas(4096) Page {
  std::array<uint64_t, 512> words;
};

UniqueFd OpenNull() {
  return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}
UniqueFd MakeTmpfs() {
  return UniqueFd(memfd_create("benchmark", MFD_CLOEXEC));
}
UniqueFd MakeFile() {
  return UniqueFd(
      open(RINGSIDE_BENCHMARK_DIRECTORY, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600));
}

// The number of each page, beginning with 1, in its first word.
bool WriteNumbers(const UniqueFd& file, size_t pages) {
  Page page = {};
  for (size_t i = 0; i < pages; ++i) {
    page.words[0] = i + 1;
    const auto offset = static_cast<off_t>(i * sizeof page);
    if (pwrite(file.get(), &page, sizeof page, offset) != sizeof page) return false;
  }
  return true;
}

// Reads the first pages of a file, all at once.
class Reads {
 public:
  Reads(Uring& uring, int file, size_t depth, int32_t expected)
      : uring_(uring), expected_(expected), pages_(depth), ops_(depth, Op(*this)) {
    for (size_t i = 0; i < depth; ++i) {
      io_uring_prep_read(&entries_.emplace_back(), file, &pages_[i], sizeof(Page),
                         i * sizeof(Page));
    }
  }

  void Run() {
    for (size_t i = 0; i < ops_.size(); ++i) failed_ |= !uring_.Push(entries_[i], ops_[i]);
    in_flight_ = failed_ ? 0 : ops_.size();
    while (in_flight_ > 0) {
      uring_.Enter(Uring::kForever);
      uring_.Reap();
    }
  }

  // Whether all reads gave what was expected.
  bool ok() const { return !failed_; }
  bool HasNumbers() const {
    for (size_t i = 0; i < pages_.size(); ++i) {
      if (pages_[i].words[0] != i + 1) return false;
    }
    return true;
  }

 private:
  class Op final : public UringOp {
   public:
    explicit Op(Reads& reads) : reads_(&reads) {}
    void Complete(int32_t result) override {
      --reads_->in_flight_;
      reads_->failed_ |= result != reads_->expected_;
    }

   private:
    Reads* reads_;
  };

  Uring& uring_;
  const int32_t expected_;
  std::vector<Page> pages_;
  std::vector<Op> ops_;
  std::vector<io_uring_sqe> entries_;
  size_t in_flight_ = 0;
  bool failed_ = false;
};

void UringRead(benchmark::State& state, UniqueFd (*open_file)(), int32_t expected) {
  const auto depth = static_cast<size_t>(state.range(0));
  const UniqueFd file = open_file();
  if (!file.valid() || (expected > 0 && !WriteNumbers(file, depth))) {
    return state.SkipWithError("the file to read cannot be made");
  }
  const auto uring = Uring::Create();
  if (!uring.ok()) return state.SkipWithError(std::string(uring.status().message()).c_str());
  const auto index = (*uring)->RegisterFile(file.get());
  if (!index.ok()) return state.SkipWithError(std::string(index.status().message()).c_str());

  Reads reads(**uring, *index, depth, expected);
  uint64_t runs = 0;
  const uint64_t enters = (*uring)->enters();
  Measure(
      state,
      [&](Calls& calls) {
        for (; calls.More(); ++runs) reads.Run();
      },
      state.range(0));
  state.counters["enters"] =
      static_cast<double>((*uring)->enters() - enters) / static_cast<double>(runs * depth);
  Require(state, reads.ok(), "a read failed");
  Require(state, expected == 0 || reads.HasNumbers(), "a read brought something else");
}

#define RINGSIDE_URING_READ(name, ...)      \
  BENCHMARK_CAPTURE(UringRead, __VA_ARGS__) \
      ->Name("uring_read_" #name)           \
      ->ArgName("depth")                    \
      ->Arg(1)                              \
      ->Arg(32)                             \
      ->UseRealTime()
RINGSIDE_URING_READ(null, null, OpenNull, 0);
RINGSIDE_URING_READ(tmpfs, tmpfs, MakeTmpfs, sizeof(Page));
RINGSIDE_URING_READ(file, file, MakeFile, sizeof(Page));

}  // namespace
}  // namespace ringside::benchmarks
