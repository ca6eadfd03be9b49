// SHA-256, by hand and by the processor.
#include "base/sha256.h"

#include <gtest/gtest.h>
#include <string>

#include "absl/strings/escaping.h"

namespace ringside {
namespace {

std::string Digest(const std::string& text, bool by_hand, size_t piece) {
  Sha256 sum(by_hand);
  for (size_t at = 0; at < text.size(); at += piece) {
    const std::string part = text.substr(at, piece);
    sum.Update(std::as_bytes(std::span(part)));
  }
  const Sha256::Digest digest = sum.Finish();
  return absl::BytesToHexString(std::string(digest.begin(), digest.end()));
}

// The examples of FIPS 180-2, appendix B, and the empty message.
TEST(Sha256Test, SumsWhatTheStandardSums) {
  for (const bool by_hand : {true, false}) {
    EXPECT_EQ(Digest("", by_hand, 1),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(Digest("abc", by_hand, 3),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(Digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", by_hand, 5),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(Digest(std::string(1'000'000, 'a'), by_hand, 4099),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(Sha256Test, EveryLengthIsPaddedTheSameBothWays) {
  for (size_t length = 0; length < 200; ++length) {
    const std::string text(length, static_cast<char>('a' + length % 26));
    EXPECT_EQ(Digest(text, true, 1), Digest(text, false, 64)) << length;
  }
}

}  // namespace
}  // namespace ringside
