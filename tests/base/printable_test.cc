#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace ringside {
namespace {

TEST(Printable, TextStaysAsItIs) {
  for (const char* text : {"", "disk 'a b.img'", "Gr\xc3\xb6\xc3\x9f" "e", "\xe6\x97\xa5", "\\x1b",
                           "\xf0\x9f\x92\xbe", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(Printable, WhatATerminalObeysIsSpeltOut) {
  EXPECT_EQ(Printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(Printable("one\nline\r"), "one\\x0aline\\x0d");
  EXPECT_EQ(Printable("\x7f\t\x9b"), "\\x7f\\x09\\x9b");
  EXPECT_EQ(Printable("\xc2\x9b" "31m"), "\\xc2\\x9b31m");  // U+009B: CSI in one character
  EXPECT_EQ(Printable("\xe2\x80\xae" "gmi"), "\\xe2\\x80\\xaegmi");  // U+202E: right to left
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, WhatIsNoUtf8IsSpeltOut) {
  EXPECT_EQ(Printable("\x80"), "\\x80");
  EXPECT_EQ(Printable("\xc3"), "\\xc3");                      // cut off
  EXPECT_EQ(Printable("\xc3("), "\\xc3(");                    // nothing that follows it
  EXPECT_EQ(Printable("\xc0\x8a"), "\\xc0\\x8a");             // a line feed in two bytes
  EXPECT_EQ(Printable("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");    // CSI in three
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");    // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(Printable("\xff"), "\\xff");
  // An A in more bytes than it takes.
  EXPECT_EQ(Printable("\xc1\x81"), "\\xc1\\x81");
  EXPECT_EQ(Printable("\xe0\x81\x81"), "\\xe0\\x81\\x81");
  EXPECT_EQ(Printable("\xf0\x80\x81\x81"), "\\xf0\\x80\\x81\\x81");
}

TEST(Printable, WhatIsPrintableAlreadyStays) {
  const std::string once = Printable("a\x1b\xc2\x9b");
  EXPECT_EQ(Printable(once), once);
}

// Whatever name is put into it: a guest, a server or a file cannot write a second line.
TEST(Logger, ALineIsOneLineThatNoTerminalObeys) {
  struct Sink final : LogSink {
    void Log(Severity, std::string_view line) override { said = line; }
    std::string said;
  } sink;
  Logger(&sink).Log(Severity::kInfo, "disk '%s' is gone", "a\nringside: error: all is lost\x1b[A");
  EXPECT_EQ(sink.said, "disk 'a\\x0aringside: error: all is lost\\x1b[A' is gone");
}

}  // namespace
}  // namespace ringside
