// Who has a file open, as far as /proc tells: for messages to people.
//
// Threads: any.
#pragma once

#include <string>

namespace ringside {

// "process 4711 (fio)", the first that is found of those who have the file of `fd` open by another
// descriptor than `fd`; "another process" if none is, as with those of other users.
std::string FileUser(int fd, bool writers_only);

}  // namespace ringside
