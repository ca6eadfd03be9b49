// The ways the guest can end, for the VMM to notice: one of them is chosen by "end=" on the command
// line.

#ifndef RINGSIDE_TESTS_GUEST_END_H_
#define RINGSIDE_TESTS_GUEST_END_H_

#include <string_view>

namespace guest {

// How to end, of the names in end.cc. The name must stay in place.
void ChooseEnd(std::string_view name);

// Prints "guest: end=..." and ends as chosen; a name that is none ends in poweroff, after a FAIL
// line. Also called by exceptions.
[[noreturn]] void End();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_END_H_
