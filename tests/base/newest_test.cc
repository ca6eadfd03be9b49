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

std::vector<int> Last(Newest<int>& newest, size_t count) {
  std::vector<int> last;
  newest.ForNewest(count, [&last](int record) { last.push_back(record); });
  return last;
}

TEST(NewestTest, GoesThroughTheNewestBackwards) {
  Newest<int> newest(3);
  EXPECT_THAT(Last(newest, 1), IsEmpty());
  newest.Add() = 1;
  newest.Add() = 2;
  EXPECT_THAT(Last(newest, 0), IsEmpty());
  EXPECT_THAT(Last(newest, 1), ElementsAre(2));
  EXPECT_THAT(Last(newest, 9), ElementsAre(2, 1)) << "no more than there are";
  newest.Add() = 3;
  EXPECT_THAT(Last(newest, 2), ElementsAre(3, 2)) << "the next place is the first one";
  newest.Add() = 4;
  EXPECT_THAT(Last(newest, 2), ElementsAre(4, 3));
  EXPECT_THAT(Last(newest, SIZE_MAX), ElementsAre(4, 3, 2)) << "nor than there is room for";
  newest.ForNewest(2, [](int& record) { record *= 10; });
  EXPECT_THAT(newest.InOrder(), ElementsAre(2, 30, 40));
}

}  // namespace
}  // namespace ringside
