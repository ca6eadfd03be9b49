// An NvmeModel with the least driver there is.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "tests/support/nvme/nvme_model.h"
#include "tests/support/nvme/nvme_test_driver.h"

namespace ringside::testing {

class NvmeModelTest : public ::testing::Test {
 protected:
  ~NvmeModelTest() override { Detach(); }

  void Attach() {
    device_ = model().Attach();
    ASSERT_NE(device_, nullptr);
    driver_.emplace(*device_);
    ASSERT_TRUE(driver_->mapped().ok()) << driver_->mapped();
  }
  void Detach() {
    driver_.reset();
    device_.reset();
  }
  // With I/O queue 1. `config_` counts up to here.
  void Start() {
    ASSERT_NO_FATAL_FAILURE(Attach());
    ASSERT_NO_FATAL_FAILURE(Enable());
  }
  void Enable() {
    ASSERT_TRUE(driver_->Enable());
    ASSERT_EQ(driver_->CreateQueue(1), nvme::kSuccess);
  }
  // Once a driver has seen to it that all is well.
  void ExpectNoViolation() { EXPECT_THAT(model().violations(), ::testing::IsEmpty()); }
  void ExpectViolation(const std::string& text) {
    EXPECT_THAT(model().violations(), ::testing::ElementsAre(::testing::HasSubstr(text)));
  }

  NvmeModel& model() {
    if (!model_) model_.emplace(config_);
    return *model_;
  }

  NvmeModelConfig config_;
  std::optional<NvmeModel> model_;
  std::unique_ptr<PciDevice> device_;
  std::optional<NvmeTestDriver> driver_;
};

}  // namespace ringside::testing
