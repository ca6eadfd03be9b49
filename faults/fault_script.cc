#include "faults/fault_script.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/bad_input_errno.h"
#include "base/fd.h"
#include "base/read_text.h"
#include "base/size.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr absl::Duration kLongestTime = absl::Hours(1);
constexpr int kMostErrno = 133;

constexpr uint8_t Bit(BlockOp op) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(op));
}
constexpr uint8_t kAnyOperation = 0x1f;

struct Operation {
  std::string_view name;
  uint8_t bits;
};
constexpr std::array kOperations = {
    Operation{"read", Bit(BlockOp::kRead)},          Operation{"write", Bit(BlockOp::kWrite)},
    Operation{"flush", Bit(BlockOp::kFlush)},        Operation{"discard", Bit(BlockOp::kDiscard)},
    Operation{"zeroes", Bit(BlockOp::kWriteZeroes)}, Operation{"any", kAnyOperation}};

// "error=EIO": a word of a rule.
struct Word {
  std::string_view key;
  std::string_view value;
  bool has_value;
};

Word SplitWord(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return {text, {}, false};
  return {text.substr(0, equals), text.substr(equals + 1), true};
}

absl::Status ReadErrno(std::string_view text, int& error) {
  for (int each = 1; each <= kMostErrno; ++each) {
    const char* name = strerrorname_np(each);
    if (name == nullptr || text != name) continue;
    // It is how a request is given back that is to be begun anew.
    if (each == ECANCELED) return BadInput("'ECANCELED' is for Ringside's own use: give another");
    error = each;
    return absl::OkStatus();
  }
  return BadInput("'%s' is the name of no error: give one of errno(3), such as EIO or ENOSPC",
                  text);
}

absl::Status ReadBytes(std::string_view text, uint64_t& bytes) {
  RINGSIDE_ASSIGN_OR_RETURN(bytes, ParseSize(text));
  if (bytes % 512 == 0) return absl::OkStatus();
  return BadInput("'%s' is not a multiple of 512 bytes", text);
}

absl::Status ReadTime(std::string_view text, int64_t& ns) {
  absl::Duration time;
  if (!absl::ParseDuration({text.data(), text.size()}, &time) || time < absl::ZeroDuration() ||
      time > kLongestTime) {
    return BadInput("'%s' is not a time from 0 to 1h: give a number with a unit, such as 5ms",
                    text);
  }
  ns = absl::ToInt64Nanoseconds(time);
  return absl::OkStatus();
}

template <typename Number>
absl::Status ReadWhole(std::string_view text, uint64_t least, uint64_t most, Number& number) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &value) || value < least ||
      value > most) {
    return most == UINT64_MAX
               ? BadInput("'%s' is not a whole number from %d on", text, least)
               : BadInput("'%s' is not a whole number from %d to %d", text, least, most);
  }
  number = static_cast<Number>(value);
  return absl::OkStatus();
}

absl::Status ReadRange(std::string_view text, FaultRule& rule) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) {
    return BadInput("'%s' is no range: give FROM-TO, such as 1M-2M", text);
  }
  RINGSIDE_RETURN_IF_ERROR(ReadBytes(text.substr(0, dash), rule.first_byte));
  RINGSIDE_RETURN_IF_ERROR(ReadBytes(text.substr(dash + 1), rule.end_byte));
  if (rule.first_byte < rule.end_byte) return absl::OkStatus();
  return BadInput("the range '%s' is empty: its end is not part of it", text);
}

absl::Status ReadProbability(std::string_view text, double& probability) {
  if (absl::SimpleAtod(absl::string_view(text.data(), text.size()), &probability) &&
      probability > 0 && probability <= 1) {
    return absl::OkStatus();
  }
  return BadInput("'%s' is not a probability: give more than 0 and at most 1", text);
}

// What a fault is called, and how its value is read: null if it has none.
struct Action {
  std::string_view name;
  FaultAction action;
  absl::Status (*read)(std::string_view text, FaultRule& rule);
};
constexpr std::array kActions = {
    Action{"error", FaultAction::kError,
           [](std::string_view text, FaultRule& rule) { return ReadErrno(text, rule.error); }},
    Action{"short", FaultAction::kShort,
           [](std::string_view text, FaultRule& rule) { return ReadBytes(text, rule.bytes); }},
    Action{"torn", FaultAction::kTorn, nullptr},
    Action{"delay", FaultAction::kDelay,
           [](std::string_view text, FaultRule& rule) { return ReadTime(text, rule.delay_ns); }},
    Action{"hang", FaultAction::kHang, nullptr},
    Action{"reorder", FaultAction::kReorder,
           [](std::string_view text, FaultRule& rule) {
             return ReadWhole(text, 2, kMostReordered, rule.reorder);
           }},
    Action{"cut", FaultAction::kCut, nullptr}};

struct Condition {
  std::string_view name;
  absl::Status (*read)(std::string_view text, FaultRule& rule);
};
constexpr std::array kConditions = {
    Condition{"offset",
              [](std::string_view text, FaultRule& rule) { return ReadRange(text, rule); }},
    Condition{"after", [](std::string_view text,
                          FaultRule& rule) { return ReadWhole(text, 0, UINT64_MAX, rule.after); }},
    Condition{"count", [](std::string_view text,
                          FaultRule& rule) { return ReadWhole(text, 1, UINT64_MAX, rule.count); }},
    Condition{"after-time",
              [](std::string_view text, FaultRule& rule) { return ReadTime(text, rule.after_ns); }},
    Condition{"probability", [](std::string_view text, FaultRule& rule) {
                return ReadProbability(text, rule.probability);
              }}};

template <typename Entry, size_t kCount>
const Entry* Find(const std::array<Entry, kCount>& entries, std::string_view name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

absl::Status ReadAction(const Word& word, FaultRule& rule) {
  const Action* action = Find(kActions, word.key);
  if (action == nullptr) {
    return BadInput("'%s' is no fault: give error=, short=, torn, delay=, hang, reorder= or cut",
                    word.key);
  }
  rule.action = action->action;
  if (action->read == nullptr) {
    if (!word.has_value) return absl::OkStatus();
    return BadInput("'%s' takes no value: leave out '=%s'", word.key, word.value);
  }
  if (!word.has_value) return BadInput("'%s' needs a value: give %s=...", word.key, word.key);
  return action->read(word.value, rule);
}

// Whether the fault and the operations go together.
absl::Status CheckRule(const FaultRule& rule) {
  constexpr uint8_t kTransfers = kAnyOperation & ~Bit(BlockOp::kFlush);
  if (rule.action == FaultAction::kTorn && rule.operations != Bit(BlockOp::kWrite)) {
    return BadInput("torn is for writes only: give 'write torn'");
  }
  if (rule.action == FaultAction::kShort && (rule.operations & ~kTransfers) != 0) {
    return BadInput(
        "a flush transfers nothing, so none is short: give read, write, discard or zeroes");
  }
  if (rule.has_range() && rule.operations == Bit(BlockOp::kFlush)) {
    return BadInput("a flush has no offset: leave out offset=");
  }
  return absl::OkStatus();
}

absl::Status ReadCondition(const Word& word, FaultRule& rule) {
  const Condition* condition = Find(kConditions, word.key);
  if (condition != nullptr && word.has_value) return condition->read(word.value, rule);
  return BadInput("'%s' is no condition: give offset=, after=, count=, after-time= or probability=",
                  word.key);
}

absl::StatusOr<FaultRule> ReadRule(const std::vector<std::string_view>& words) {
  FaultRule rule;
  size_t at = 0;
  if (words[0] == "cut") {
    rule.operations = kAnyOperation;  // a power cut is of the whole disk
  } else {
    const Operation* operation = Find(kOperations, words[at++]);
    if (operation == nullptr) {
      return BadInput(
          "'%s' is no operation: give read, write, flush, discard, zeroes or any, or 'cut', or "
          "'seed=N'",
          words[0]);
    }
    rule.operations = operation->bits;
  }
  if (at == words.size()) {
    return BadInput("'%s' has no fault: give one, such as error=EIO", words[0]);
  }
  RINGSIDE_RETURN_IF_ERROR(ReadAction(SplitWord(words[at++]), rule));
  std::vector<std::string_view> given;
  for (; at < words.size(); ++at) {
    const Word word = SplitWord(words[at]);
    // Of two values one would be left out in silence.
    for (const std::string_view before : given) {
      if (before == word.key) return BadInput("'%s' is there twice: give it once", word.key);
    }
    given.push_back(word.key);
    RINGSIDE_RETURN_IF_ERROR(ReadCondition(word, rule));
  }
  RINGSIDE_RETURN_IF_ERROR(CheckRule(rule));
  return rule;
}

absl::Status ReadLine(std::string_view line, FaultScript& script) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (const absl::string_view word : absl::StrSplit(absl::string_view(line.data(), line.size()),
                                                     absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
    words.emplace_back(word.data(), word.size());
  }
  if (words.empty()) return absl::OkStatus();
  if (const Word first = SplitWord(words[0]); first.key == "seed") {
    if (words.size() > 1)
      return BadInput("'%s' follows the seed: give it a line of its own", words[1]);
    return ReadWhole(first.value, 0, UINT64_MAX, script.seed);
  }
  if (script.rules.size() == kMostFaultRules) {
    return BadInput("a script has at most %d rules: leave some out", kMostFaultRules);
  }
  RINGSIDE_ASSIGN_OR_RETURN(script.rules.emplace_back(), ReadRule(words));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FaultScript> ParseFaultScript(std::string_view text, const std::string& name) {
  if (text.size() > kMostFaultScriptBytes) {
    return BadInput("fault script '%s' is too long: give at most %s", name,
                    FormatSize(kMostFaultScriptBytes));
  }
  FaultScript script;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    const absl::Status status = ReadLine(text.substr(0, end), script);
    if (!status.ok()) {
      return BadInput("fault script '%s', line %d: %s", name, number, Message(status));
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  if (!script.rules.empty()) return script;
  return BadInput("fault script '%s' has no rule: give one, such as 'write error=EIO'", name);
}

absl::StatusOr<FaultScript> ReadFaultScript(const std::string& path) {
  // Without waiting for who writes to a pipe.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const std::string what = absl::StrFormat("cannot read the fault script '%s'", path);
  struct stat info;
  if (!file.valid() || fstat(file.get(), &info) != 0) return BadInputErrno(errno, what);
  if (!S_ISREG(info.st_mode)) {
    return BadInput("%s: it is no regular file; give the path of a text file", what);
  }
  const std::optional<std::string> text = ReadText(file.get(), kMostFaultScriptBytes);
  if (!text) return BadInputErrno(errno, what);
  return ParseFaultScript(*text, path);
}

}  // namespace ringside
