#include "base/size.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace ringside {
namespace {

TEST(ParseSize, ReadsBytesAndPowersOf1024) {
  const struct {
    const char* text;
    uint64_t bytes;
  } kTable[] = {
      {"0", 0},
      {"0T", 0},
      {"1", 1},
      {"512", 512},
      {"007", 7},
      {"1K", uint64_t{1} << 10},
      {"640K", 640 * 1024},
      {"3M", uint64_t{3} << 20},
      {"2G", uint64_t{2} << 30},
      {"5T", uint64_t{5} << 40},
      {"18446744073709551615", UINT64_MAX},
      {"16777215T", uint64_t{16777215} << 40},
      {"18014398509481983K", uint64_t{18014398509481983} << 10},
  };
  for (const auto& row : kTable) {
    const absl::StatusOr<uint64_t> bytes = ParseSize(row.text);
    ASSERT_TRUE(bytes.ok()) << row.text << ": " << bytes.status();
    EXPECT_EQ(*bytes, row.bytes) << row.text;
  }
}

TEST(ParseSize, TakesSuffixesInEitherCase) {
  for (const auto& [small, large] :
       {std::pair("7k", "7K"), {"7m", "7M"}, {"7g", "7G"}, {"7t", "7T"}}) {
    const absl::StatusOr<uint64_t> of_small = ParseSize(small);
    const absl::StatusOr<uint64_t> of_large = ParseSize(large);
    ASSERT_TRUE(of_small.ok() && of_large.ok()) << small;
    EXPECT_EQ(*of_small, *of_large) << small;
  }
}

TEST(ParseSize, RefusesWhatIsNoSizeAndQuotesIt) {
  for (const char* text :
       {"",     "K",   " 1", "1 ", "1 K", "+1", "-1",    "-1K", "1.5G",  "1e3", "0x10", "1KB",
        "1KiB", "1KK", "1B", "1P", "1[",  "1{", "1\xcb", "one", "1,000", "\n1", "1\n"}) {
    const absl::StatusOr<uint64_t> bytes = ParseSize(text);
    ASSERT_FALSE(bytes.ok()) << "'" << text << "' gave " << *bytes;
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(Message(bytes.status()).find(absl::StrFormat("'%s' is not a size", text)),
              std::string_view::npos)
        << bytes.status();
  }
}

TEST(ParseSize, RefusesWhatIsInsideTheTextBehindANul) {
  EXPECT_FALSE(ParseSize(std::string_view("1\0K", 3)).ok());
  EXPECT_FALSE(ParseSize(std::string_view("1\0", 2)).ok());
}

TEST(ParseSize, SaysThatANumberIsTooLargeNotThatItIsNone) {
  for (const char* text :
       {"18446744073709551616", "99999999999999999999999", "18014398509481984K", "17592186044416M",
        "17179869184G", "16777216T", "18446744073709551615K", "99999999999999999999999K"}) {
    const absl::StatusOr<uint64_t> bytes = ParseSize(text);
    ASSERT_FALSE(bytes.ok()) << "'" << text << "' gave " << *bytes;
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(Message(bytes.status()).find("more than 64 bits"), std::string_view::npos)
        << bytes.status();
  }
}

TEST(FormatSize, IsTheShortestExactForm) {
  const struct {
    uint64_t bytes;
    const char* text;
  } kTable[] = {
      {0, "0"},
      {1, "1"},
      {1023, "1023"},
      {1024, "1K"},
      {1025, "1025"},
      {640 * 1024, "640K"},
      {(1 << 20) - 1, "1048575"},
      {1 << 20, "1M"},
      {(1 << 20) + 1024, "1025K"},
      {uint64_t{3} << 30, "3G"},
      {(uint64_t{3} << 30) + (1 << 20), "3073M"},
      {uint64_t{2} << 40, "2T"},
      {uint64_t{2048} << 40, "2048T"},
  };
  for (const auto& row : kTable) EXPECT_EQ(FormatSize(row.bytes), row.text);
}

TEST(FormatSize, RoundsOddBytesUpToWholeMegabytes) {
  EXPECT_EQ(FormatSize((1 << 20) + 1), "2M");
  EXPECT_EQ(FormatSize((2 << 20) - 1), "2M");
  EXPECT_EQ(FormatSize((uint64_t{1} << 30) + 1), "1025M");
  EXPECT_EQ(FormatSize(UINT64_MAX), "17592186044416M");
}

TEST(FormatSize, IsReadBackAsTheSameSize) {
  for (unsigned shift = 0; shift < 64; ++shift) {
    for (const uint64_t factor : {1, 3, 1023}) {
      const uint64_t bytes = factor << shift;
      if (bytes >> shift != factor) continue;
      const absl::StatusOr<uint64_t> again = ParseSize(FormatSize(bytes));
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, bytes) << FormatSize(bytes);
    }
  }
}

}  // namespace
}  // namespace ringside
