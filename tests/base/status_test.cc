#include "base/status.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <memory>

namespace ringside {
namespace {

TEST(ErrnoError, SaysWhatWasTriedWhyItFailedAndWhatToDo) {
  const absl::Status status = ErrnoError(ENOENT, "cannot open 'disk.img'", "create it first");
  EXPECT_EQ(Message(status), "cannot open 'disk.img': No such file or directory; create it first");
}

TEST(ErrnoError, EndsAfterTheReasonWhereNothingCanBeDone) {
  EXPECT_EQ(Message(ErrnoError(EIO, "cannot read")), "cannot read: Input/output error");
}

// Whatever it was for.
TEST(ErrnoError, WithoutDescriptorsTheirLimitIsNamed) {
  const std::string text(Message(ErrnoError(EMFILE, "cannot create vCPU 0", "ask for fewer")));
  EXPECT_EQ(text.find("cannot create vCPU 0: Too many open files; raise 'ulimit -n', which is "), 0)
      << text;
  EXPECT_EQ(text.find("ask for fewer"), std::string::npos) << text;
}

// The command's exit code hangs on it: 2 for what the user can mend.
TEST(ErrnoError, CodeTellsTheUsersFaultFromAFailure) {
  EXPECT_EQ(ErrnoError(ENOENT, "").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrnoError(EACCES, "").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrnoError(EINVAL, "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrnoError(EMFILE, "").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoError(ENOMEM, "").code(), absl::StatusCode::kResourceExhausted);
}

TEST(ErrnoError, NumbersUnknownToTheSystemAreNamedByNumber) {
  const absl::Status status = ErrnoError(99999, "cannot");
  EXPECT_FALSE(status.ok());
  EXPECT_NE(Message(status).find("99999"), std::string_view::npos);
}

TEST(BadInput, IsTheUsersFaultAndFormats) {
  const absl::Status status = BadInput("'%s' is not %d", "three", 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "'three' is not 3");
}

absl::Status FirstError(const absl::Status& first, const absl::Status& second, int& passed) {
  RINGSIDE_RETURN_IF_ERROR(first);
  ++passed;
  RINGSIDE_RETURN_IF_ERROR(second);
  ++passed;
  return absl::OkStatus();
}

TEST(ReturnIfError, LeavesAtTheFirstErrorAndOnlyThere) {
  const absl::Status error = absl::AbortedError("stop");
  int passed = 0;
  EXPECT_EQ(FirstError(absl::OkStatus(), error, passed), error);
  EXPECT_EQ(passed, 1);
  passed = 0;
  EXPECT_TRUE(FirstError(absl::OkStatus(), absl::OkStatus(), passed).ok());
  EXPECT_EQ(passed, 2);
}

absl::StatusOr<std::unique_ptr<int>> Half(int number) {
  if (number % 2 != 0) return BadInput("%d is odd", number);
  return std::make_unique<int>(number / 2);
}

absl::StatusOr<int> Quarter(int number) {
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<int> half, Half(number));
  RINGSIDE_ASSIGN_OR_RETURN(half, Half(*half));  // an existing variable as well
  return *half;
}

TEST(AssignOrReturn, MovesTheValueOutOrPassesTheErrorOn) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Message(Quarter(6).status()), "3 is odd");
  EXPECT_EQ(Message(Quarter(5).status()), "5 is odd");
}

}  // namespace
}  // namespace ringside
