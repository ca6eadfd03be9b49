// The agent's protocol: what is encoded is decoded again, and nothing else is.
#include "agent/agent_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ringside {
namespace {

using ::testing::ElementsAre;

AgentFrame Only(const std::string& bytes) {
  AgentFrame frame;
  EXPECT_EQ(ReadFrame(bytes, frame), FrameState::kWhole);
  EXPECT_EQ(frame.size(), bytes.size());
  return frame;
}

// As it would be sent, without the frame.
template <typename Message>
std::string PayloadOf(const Message& message) {
  std::string bytes;
  Encode(message, bytes);
  return bytes.substr(kFrameHeader);
}

std::string Frame(uint32_t length, uint16_t type, uint16_t reserved = 0) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  for (const uint16_t half : {type, reserved}) {
    bytes.push_back(static_cast<char>(half));
    bytes.push_back(static_cast<char>(half >> 8));
  }
  return bytes;
}

TEST(AgentMessageTest, ACommandArrivesAsItWasSent) {
  ExecMessage sent;
  sent.with_terminal = true;
  sent.size = {.rows = 50, .columns = 132};
  sent.gid = 7;
  sent.arguments = {"sh", "-c", "", "a b"};
  sent.environment = {"A=1", "B="};
  sent.directory = "/srv";
  std::string bytes;
  Encode(sent, bytes);
  const auto exec = DecodeExec(Only(bytes).payload);
  ASSERT_TRUE(exec);
  EXPECT_TRUE(exec->with_terminal);
  EXPECT_EQ(exec->size.rows, 50);
  EXPECT_EQ(exec->size.columns, 132);
  EXPECT_FALSE(exec->uid);
  EXPECT_EQ(exec->gid, 7U);
  EXPECT_THAT(exec->arguments, ElementsAre("sh", "-c", "", "a b"));
  EXPECT_THAT(exec->environment, ElementsAre("A=1", "B="));
  EXPECT_EQ(exec->directory, "/srv");
}

TEST(AgentMessageTest, TheOthersArriveAsTheyWereSent) {
  EXPECT_EQ(DecodeHello(PayloadOf(HelloMessage{.version = 3, .capabilities = 9}))->version, 3);
  const std::string failure =
      PayloadOf(ErrorMessage{.error = 2, .of = FaultOf::kProgram, .text = "gone"});
  EXPECT_EQ(DecodeError(failure)->error, 2);
  EXPECT_EQ(DecodeError(failure)->of, FaultOf::kProgram);
  EXPECT_EQ(DecodeError(failure)->text, "gone");
  EXPECT_EQ(DecodeExit(PayloadOf(ExitMessage{.code = 0, .signal = 9}))->signal, 9U);
  EXPECT_EQ(DecodeResize(PayloadOf(TerminalSize{.rows = 3, .columns = 4}))->columns, 4);
  const std::string link = PayloadOf(EntryMessage{
      .kind = EntryKind::kLink, .mode = 0777, .size = 5, .name = "l", .target = "../x"});
  EXPECT_EQ(DecodeEntry(link)->name, "l");
  EXPECT_EQ(DecodeEntry(link)->target, "../x");
  const std::string get = PayloadOf(GetMessage{.with_directories = true, .path = "/a"});
  EXPECT_TRUE(DecodeGet(get)->with_directories);
  EXPECT_EQ(DecodeGet(get)->path, "/a");
  EXPECT_EQ(DecodeShutDown(PayloadOf(ShutDownHow::kReboot)), ShutDownHow::kReboot);
  std::string clock;
  EncodeClock(1'700'000'000'123'456'789, clock);
  EXPECT_EQ(DecodeClock(Only(clock).payload), 1'700'000'000'123'456'789);
}

// A payload that is cut, and one with a byte too many, is no message.
TEST(AgentMessageTest, APayloadIsOneMessageExactly) {
  ExecMessage command;
  command.arguments = {"a"};
  const std::string exec = PayloadOf(command);
  for (size_t size = 0; size < exec.size(); ++size) {
    EXPECT_FALSE(DecodeExec(exec.substr(0, size))) << size;
  }
  EXPECT_FALSE(DecodeExec(exec + '\0'));
  EXPECT_FALSE(DecodeHello(PayloadOf(HelloMessage{}) + 'x'));
  EXPECT_FALSE(DecodeExit(PayloadOf(ExitMessage{}).substr(1)));
  EXPECT_FALSE(DecodeResize("abc"));
  EXPECT_FALSE(DecodeNumber("abcde"));
  EXPECT_FALSE(DecodeShutDown(std::string("\2\0\0\0", 4)));
  EXPECT_FALSE(DecodeClock(std::string(8, '\xff')));
  // Many arguments are announced, and none are there: nothing is reserved for them.
  std::string many = exec;
  many.replace(16, 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(DecodeExec(many));
  command.arguments.clear();
  EXPECT_FALSE(DecodeExec(PayloadOf(command)));
}

TEST(AgentMessageTest, AFrameIsPartialUntilItIsWhole) {
  std::string bytes;
  AppendFrame(AgentType::kStdin, "hello", bytes);
  AgentFrame frame;
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ReadFrame(bytes.substr(0, size), frame), FrameState::kPartial) << size;
  }
  bytes += "more";
  EXPECT_EQ(ReadFrame(bytes, frame), FrameState::kWhole);
  EXPECT_EQ(frame.payload, "hello");
}

// It is refused at its header: nobody waits for what may not come.
TEST(AgentMessageTest, AFrameThatMayNotBeIsBroken) {
  AgentFrame frame;
  const auto stdin_type = static_cast<uint16_t>(AgentType::kStdin);
  EXPECT_EQ(ReadFrame(Frame(kMostData, stdin_type), frame), FrameState::kPartial);
  EXPECT_EQ(ReadFrame(Frame(kMostData + 1, stdin_type), frame), FrameState::kBroken);
  EXPECT_EQ(ReadFrame(Frame(0xffffffff, stdin_type), frame), FrameState::kBroken);
  EXPECT_EQ(ReadFrame(Frame(0, 0), frame), FrameState::kBroken);
  EXPECT_EQ(ReadFrame(Frame(0, 999), frame), FrameState::kBroken);
  EXPECT_EQ(ReadFrame(Frame(0, stdin_type, 1), frame), FrameState::kBroken);
}

TEST(AgentMessageTest, ANameIsOneComponent) {
  for (const std::string_view name :
       {std::string_view("."), std::string_view(".."), std::string_view("a/b"),
        std::string_view("/"), std::string_view("a\0b", 3)}) {
    EXPECT_FALSE(DecodeEntry(PayloadOf(EntryMessage{.name = name}))) << name;
  }
  EXPECT_FALSE(DecodeEntry(PayloadOf(EntryMessage{.name = std::string(256, 'x')})));
  EXPECT_TRUE(DecodeEntry(PayloadOf(EntryMessage{.name = std::string(255, 'x')})));
  EXPECT_TRUE(DecodeEntry(PayloadOf(EntryMessage{.name = "..."})));
  EXPECT_FALSE(DecodeEntry(PayloadOf(EntryMessage{.kind = EntryKind::kLink, .name = "l"})));
  EXPECT_FALSE(DecodeEntry(PayloadOf(EntryMessage{.name = "f", .target = "t"})));
  EXPECT_FALSE(DecodeEntry(PayloadOf(EntryMessage{.kind = EntryKind{4}, .name = "f"})));
  EXPECT_FALSE(DecodePut("relative"));
  EXPECT_FALSE(DecodePut(std::string("/a\0b", 4)));
}

// No set-user-ID file of a guest is one of the host's user.
TEST(AgentMessageTest, AModeIsPermissionsAlone) {
  EXPECT_EQ(DecodeEntry(PayloadOf(EntryMessage{.mode = 0106755, .name = "f"}))->mode, 0755U);
}

}  // namespace
}  // namespace ringside
