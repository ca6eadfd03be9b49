#include "base/newest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NewestTest, KeepsTheNewestInOrder) {
  Newest<int> newest(3);
  EXPECT_THAT(newest.InOrder(), IsEmpty());
  newest.Add() = 1;
  newest.Add() = 2;
  EXPECT_THAT(newest.InOrder(), ElementsAre(1, 2));
  newest.Add() = 3;
  EXPECT_THAT(newest.InOrder(), ElementsAre(1, 2, 3));
  EXPECT_EQ(newest.overwritten(), 0u);
  newest.Add() = 4;
  EXPECT_THAT(newest.InOrder(), ElementsAre(2, 3, 4));
  EXPECT_EQ(newest.overwritten(), 1u);
  for (int i = 5; i <= 9; ++i) newest.Add() = i;
  EXPECT_THAT(newest.InOrder(), ElementsAre(7, 8, 9));
  EXPECT_EQ(newest.overwritten(), 6u);
}

}  // namespace
}  // namespace ringside
