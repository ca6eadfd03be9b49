// The NVMe controller model: that it does what a controller does, and notices what a driver must
// not do.
#include "tests/support/nvme_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fd.h"
#include "base/status.h"
#include "tests/support/nvme_test_driver.h"

namespace ringside::testing {
namespace {

using nvme::AdminOp;
using nvme::IoOp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NvmeModelTest : public ::testing::Test {
 protected:
  ~NvmeModelTest() override {
    driver_.reset();
    device_.reset();
  }

  void Attach() {
    device_ = model_.Attach();
    ASSERT_NE(device_, nullptr);
    driver_.emplace(*device_);
  }
  // With an I/O queue, 1.
  void Start() {
    Attach();
    ASSERT_TRUE(driver_->Enable());
    ASSERT_EQ(driver_->CreateQueue(1), nvme::kSuccess);
  }

  NvmeModelConfig config_;
  NvmeModel model_;
  std::unique_ptr<PciDevice> device_;
  std::optional<NvmeTestDriver> driver_;
};

TEST_F(NvmeModelTest, ReadsWhatWasWritten) {
  Start();
  EXPECT_EQ(driver_->Write(7, 'a'), nvme::kSuccess);
  EXPECT_EQ(driver_->Read(7), 'a');
  EXPECT_EQ(driver_->Read(8), 0);
  EXPECT_EQ(driver_->Flush(), nvme::kSuccess);
  EXPECT_THAT(model_.violations(), IsEmpty());
}

}  // namespace
}  // namespace ringside::testing
