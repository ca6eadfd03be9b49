#include "command/command_main.h"

int main(int argc, char** argv) {
  return ringside::CommandMain(argc, argv);
}
