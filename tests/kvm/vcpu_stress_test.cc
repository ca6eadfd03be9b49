// Several threads that pause, resume and stop one vCPU at once.
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "kvm/vcpu.h"
#include "tests/support/kvm/vcpu_fixture.h"
#include "tests/support/races.h"

namespace ringside {
namespace {

using testing::SpinUntil;

// clang-format off
GUEST_CODE(SpinningGuest, R"(
1:  incq (%rdi)
    jmp 1b
)")
GUEST_CODE(PortGuest, R"(
1:  outb %al, %dx
    incq (%rdi)
    jmp 1b
)")
// clang-format on

class VcpuStressTest : public testing::VcpuTest {
 protected:
  // Until it has been told to end: pauses, and waits for the answer or for a Resume of another.
  void Pauser(Vcpu& vcpu, unsigned seed) {
    std::minstd_rand random(seed);
    while (!over_) {
      testing::Delay(static_cast<int>(random() % 2000));
      const uint64_t resumes = resumes_;
      const auto answered = std::make_shared<std::atomic<bool>>(false);
      vcpu.RequestPause([answered] { *answered = true; });
      if (!SpinUntil([&] { return *answered || resumes_ != resumes || over_; })) std::abort();
      if (random() % 2 == 0) Resume(vcpu);
    }
  }
  void Resume(Vcpu& vcpu) {
    ++resumes_;  // first: whoever sees it need not wait for an answer
    vcpu.Resume();
  }
  void Resumer(Vcpu& vcpu, unsigned seed) {
    std::minstd_rand random(seed);
    while (!over_) {
      testing::Delay(static_cast<int>(random() % 5000));
      Resume(vcpu);
    }
  }
  template <typename Alone>
  void Race(Vcpu& vcpu, int microseconds, Alone alone) {
    over_ = false;
    std::array threads = {std::thread([&] { Pauser(vcpu, 1); }),
                          std::thread([&] { Pauser(vcpu, 2); }),
                          std::thread([&] { Resumer(vcpu, 3); })};
    const int64_t end = MonotonicNs() + int64_t{microseconds} * 1000;
    while (MonotonicNs() < end) std::this_thread::yield();
    alone();
    over_ = true;
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::atomic<uint64_t> resumes_ = 0;
  std::atomic<bool> over_ = false;
};

TEST_F(VcpuStressTest, EveryPauseIsAnsweredAndTheGuestGoesOn) {
  Vcpu& vcpu = AddGuest(SpinningGuest());
  ASSERT_TRUE(vcpu.Start().ok());
  for (int round = 0; round < 100; ++round) {
    Race(vcpu, 10'000, [] {});
    Pause(vcpu);
    const uint32_t counter = Counter();
    testing::Delay(100'000);
    ASSERT_EQ(Counter(), counter);
    vcpu.Resume();
    ExpectRuns();
  }
}

// Nobody else is there who would kick a vCPU that has missed it.
TEST_F(VcpuStressTest, APauseIsAnsweredAtWhateverMomentOfAResumeItComes) {
  Vcpu& vcpu = AddGuest(SpinningGuest());
  ASSERT_TRUE(vcpu.Start().ok());
  pthread_t thread{};
  testing::BoundedEvent known;
  vcpu.RequestPause([&] {
    thread = pthread_self();
    known.Notify();
  });
  known.WaitOrAbort();
  const testing::OnTwoProcessors apart(thread);
  testing::Aim aim(20);  // the vCPU's thread has to wake up
  const testing::RaceLimit limit;
  for (int round = 0; round < testing::kRaces / 10 && !limit.IsOver(); ++round) {
    Pause(vcpu);
    const uint32_t counter = Counter();
    vcpu.Resume();
    aim.Wait();
    Pause(vcpu);
    aim.Learn(Counter() != counter);
    vcpu.Resume();
  }
}

TEST_F(VcpuStressTest, AStopInTheMiddleIsHeard) {
  std::minstd_rand random(4);
  for (int life = 0; life < 100; ++life) {
    MakeVm();
    Vcpu& vcpu = AddGuest(life % 2 == 0 ? SpinningGuest() : PortGuest());
    ASSERT_TRUE(vcpu.Start().ok());
    Race(vcpu, static_cast<int>(random() % 1000), [&] { vcpu.Join(); });
  }
}

}  // namespace
}  // namespace ringside
