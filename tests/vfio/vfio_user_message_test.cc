// The frame of a vfio-user message, and the version that both sides agree on.
#include "vfio/vfio_user_message.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/status.h"
#include "tests/support/descriptors.h"
#include "tests/support/directories.h"
#include "tests/support/vfio/vfio_user_send.h"

namespace ringside {
namespace {

using testing::CountEntries;
using testing::DevNull;
using ::testing::HasSubstr;
using testing::Must;
using testing::SendVfioUserMessage;

constexpr char kOpenFiles[] = "/proc/self/fd";

class VfioUserMessageTest : public ::testing::Test {
 protected:
  VfioUserMessageTest() {
    int ends[2];
    Must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
    ours_ = UniqueFd(ends[0]);
    theirs_ = UniqueFd(ends[1]);
  }

  void SendRaw(const void* bytes, size_t size) const {
    Must(static_cast<int>(send(theirs_.get(), bytes, size, 0)), "send");
  }
  absl::Status ErrorAfter(const VfioUserHeader& header) {
    SendRaw(&header, sizeof header);
    return VfioUserReader().Receive(ours_.get()).status();
  }

  UniqueFd ours_, theirs_;
  VfioUserReader reader_;
};

TEST_F(VfioUserMessageTest, ArrivesAsItWasSent) {
  const UniqueFd file = DevNull();
  const std::array<int, 2> fds = {file.get(), file.get()};
  VfioUserPayload payload;
  AppendTo(payload, uint64_t{0x0123456789abcdef});
  ASSERT_TRUE(
      SendVfioUserMessage(theirs_.get(), {.id = 7, .command = 4, .flags = 1}, payload, fds).ok());
  ASSERT_TRUE(SendVfioUserMessage(theirs_.get(), {.id = 8, .command = 13}, {}, {}).ok());
  auto first = reader_.Receive(ours_.get());
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ((*first)->header.id, 7);
  EXPECT_EQ((*first)->header.size, 24u);
  EXPECT_TRUE((*first)->is_reply());
  EXPECT_EQ((*first)->payload, payload);
  EXPECT_EQ((*first)->fds.size(), 2u);
  auto second = reader_.Receive(ours_.get());
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ((*second)->header.id, 8);
  EXPECT_TRUE((*second)->fds.empty());
  EXPECT_FALSE((*second)->is_reply());
  EXPECT_EQ(reader_.Receive(ours_.get())->has_value(), false);
}

TEST_F(VfioUserMessageTest, GoesInPiecesWhenTheSocketIsFull) {
  const int bytes = 64 << 10;  // whatever the host is tuned to
  ASSERT_EQ(setsockopt(theirs_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
  auto file = std::make_unique<UniqueFd>(DevNull());  // GCC 12 doubts an optional one
  const VfioUserPayload large(kVfioUserMaxTransfer, std::byte{0x5a});
  VfioUserWriter writer;
  ASSERT_TRUE(writer.Add({.id = 1}, large, std::array{file->get()}, 20).ok());
  ASSERT_TRUE(writer.Add({.id = 2}, {}, {}, 10).ok());
  file.reset();  // it has its own
  ASSERT_TRUE(writer.Send(theirs_.get()).ok());
  EXPECT_EQ(writer.end_ns(), 20);  // of the one that goes first
  std::vector<VfioUserMessage> messages;
  int sends = 1;
  for (; messages.size() < 2 && sends < 1000; ++sends) {
    auto message = reader_.Receive(ours_.get());
    ASSERT_TRUE(message.ok()) << message.status();
    if (message->has_value()) messages.push_back(**std::move(message));
    ASSERT_TRUE(writer.Send(theirs_.get()).ok());
  }
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_GT(sends, 4);
  EXPECT_EQ(messages[0].header.id, 1);
  EXPECT_EQ(messages[0].payload, large);
  EXPECT_EQ(messages[0].fds.size(), 1u);
  EXPECT_EQ(messages[1].header.id, 2);
  EXPECT_TRUE(messages[1].fds.empty());
  EXPECT_TRUE(writer.empty());
  EXPECT_EQ(writer.end_ns(), std::numeric_limits<int64_t>::max());
}

TEST_F(VfioUserMessageTest, MayComeInPieces) {
  const VfioUserHeader header = {.id = 9, .command = 4, .size = 20};
  const char* bytes = reinterpret_cast<const char*>(&header);
  for (size_t i = 0; i < sizeof header; ++i) {
    SendRaw(bytes + i, 1);
    const auto message = reader_.Receive(ours_.get());
    ASSERT_TRUE(message.ok());
    EXPECT_FALSE(message->has_value());
  }
  SendRaw("ab", 2);
  EXPECT_FALSE(reader_.Receive(ours_.get())->has_value());
  SendRaw("cd", 2);
  const auto message = reader_.Receive(ours_.get());
  ASSERT_TRUE(message.ok() && message->has_value());
  EXPECT_EQ(std::memcmp((*message)->payload.data(), "abcd", 4), 0);
}

TEST_F(VfioUserMessageTest, HasASizeThatCanBe) {
  EXPECT_TRUE(absl::IsInvalidArgument(ErrorAfter({.size = 15})));
}

TEST_F(VfioUserMessageTest, IsNotLargerThanAnyNeedBe) {
  constexpr uint32_t kMost = sizeof(VfioUserHeader) + kVfioUserMaxPayload;
  EXPECT_TRUE(absl::IsInvalidArgument(ErrorAfter({.size = kMost + 1})));
  EXPECT_TRUE(absl::IsInvalidArgument(ErrorAfter({.size = 0xffffffff})));
  EXPECT_TRUE(ErrorAfter({.size = kMost}).ok());
}

TEST_F(VfioUserMessageTest, TheEndIsAnError) {
  theirs_ = UniqueFd();
  EXPECT_TRUE(absl::IsUnavailable(reader_.Receive(ours_.get()).status()));
}

// One more than we take beside it, all of which are closed.
TEST_F(VfioUserMessageTest, HasSoManyDescriptorsAtMost) {
  const UniqueFd file = DevNull();
  const size_t before = CountEntries(kOpenFiles);
  const std::array<int, kVfioUserMaxMessageFds> many = [&] {
    std::array<int, kVfioUserMaxMessageFds> fds;
    fds.fill(file.get());
    return fds;
  }();
  VfioUserPayload payload(1);
  ASSERT_TRUE(SendVfioUserMessage(theirs_.get(), {}, payload, many).ok());
  {
    const auto message = reader_.Receive(ours_.get());
    ASSERT_TRUE(message.ok() && message->has_value());
    EXPECT_EQ((*message)->fds.size(), kVfioUserMaxMessageFds);
  }
  EXPECT_EQ(CountEntries(kOpenFiles), before);

  // Beside the header and beside the payload.
  std::array<char, CMSG_SPACE(sizeof(int) * 9)> control{};
  VfioUserHeader header = {.size = 17};
  iovec part{&header, sizeof header};
  msghdr message{.msg_iov = &part,
                 .msg_iovlen = 1,
                 .msg_control = control.data(),
                 .msg_controllen = control.size()};
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * 9);
  std::memcpy(CMSG_DATA(rights), many.data(), sizeof(int) * 9);
  Must(static_cast<int>(sendmsg(theirs_.get(), &message, 0)), "sendmsg");
  part.iov_len = 1;
  Must(static_cast<int>(sendmsg(theirs_.get(), &message, 0)), "sendmsg");
  {
    VfioUserReader reader;
    EXPECT_TRUE(absl::IsInvalidArgument(reader.Receive(ours_.get()).status()));
  }
  EXPECT_EQ(CountEntries(kOpenFiles), before);
}

absl::StatusOr<VfioUserCapabilities> Parse(const std::string& json, uint16_t major = 0) {
  VfioUserPayload payload;
  AppendTo(payload, VfioUserVersion{.major = major, .minor = 1});
  for (const char each : json) AppendTo(payload, each);
  return ParseVfioUserVersion(payload);
}

TEST(VfioUserVersionTest, OurOwnCanBeParsed) {
  const auto capabilities = ParseVfioUserVersion(VfioUserVersionRequest());
  ASSERT_TRUE(capabilities.ok()) << capabilities.status();
  EXPECT_EQ(capabilities->max_fds, kVfioUserMaxMessageFds);
  EXPECT_EQ(capabilities->max_transfer, kVfioUserMaxTransfer);
}

TEST(VfioUserVersionTest, WhatIsNotSaidIsTheDefault) {
  for (const std::string json : {"", "{}", R"({"capabilities":{"migration":{}}})"}) {
    const auto capabilities = Parse(json.empty() ? json : json + '\0');
    ASSERT_TRUE(capabilities.ok()) << json << capabilities.status();
    EXPECT_EQ(capabilities->max_fds, 1u);
    EXPECT_EQ(capabilities->max_dma_maps, 65535u);
    EXPECT_EQ(capabilities->page_sizes, 4096u);
  }
  const std::string all =
      R"({"capabilities":{"max_msg_fds":8,"max_dma_maps":3,"pgsizes":2097152}})";
  const auto capabilities = Parse(all + '\0');
  ASSERT_TRUE(capabilities.ok()) << capabilities.status();
  EXPECT_EQ(capabilities->max_fds, 8u);
  EXPECT_EQ(capabilities->max_dma_maps, 3u);
  EXPECT_EQ(capabilities->page_sizes, 2097152u);
}

TEST(VfioUserVersionTest, NonsenseIsRefused) {
  for (const std::string json :
       {"{}", "[]", "{\"capabilities\":1}", "{\"capabilities\":{\"max_msg_fds\":\"8\"}}",
        "{\"capabilities\":{\"max_msg_fds\":-1}}", "{\"capabilities\":{\"pgsizes\":0}}",
        "{\"capabilities\":{\"max_dma_maps\":1.5}}", "{", "\xff"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Parse(json == "{}" ? json : json + '\0').status())) << json;
  }
  // As deep as a message is long.
  const std::string deep = std::string(kVfioUserMaxTransfer / 2, '[');
  EXPECT_FALSE(Parse(deep + '\0').ok());
  const std::string closed = R"({"capabilities":{"max_msg_fds":)" + std::string(400000, '[') +
                             std::string(400000, ']') + "}}";
  EXPECT_FALSE(Parse(closed + '\0').ok());
  EXPECT_FALSE(ParseVfioUserVersion({}).ok());
}

TEST(VfioUserVersionTest, AnotherMajorVersionIsTheUsersToMend) {
  const auto status = Parse("", 1).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("speaks version 1.1 of vfio-user"));
}

}  // namespace
}  // namespace ringside
