# cmake -DINPUT=FILE -DOUTPUT=HEADER -DNAME=name -P embed.cmake: a file as an array kName.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(SUBSTRING ${NAME} 0 1 first)
string(TOUPPER ${first} first)
string(SUBSTRING ${NAME} 1 -1 rest)
file(WRITE ${OUTPUT} "#pragma once
#include <cstdint>
namespace ringside {
inline constexpr uint8_t k${first}${rest}[] = {${bytes}};
}
")
