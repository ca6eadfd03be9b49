#include "vmm/vsock_options.h"

#include "devices/vsock_packet.h"

namespace ringside {

const OptionTable<VsockConfig>& VsockOptions() {
  static const OptionTable<VsockConfig> table = {
      "a vsock",
      {{{.name = "cid",
         .type = Whole(kVsockFirstCid, kVsockLastCid),
         .unit = "as the guest's context id",
         .doc = "the guest's context id; no program of the host needs it",
         .is_required = true},
        [](auto& vsock) -> auto& { return vsock.cid; }},
       {{.name = "path",
         .type = Plain(OptionKind::kPath),
         .doc =
             "the Unix socket at which programs of the host connect to the guest; what the guest "
             "connects to on port P of the host is the socket PATH_P",
         .is_required = true},
        [](auto& vsock) -> auto& { return vsock.path; }},
       {{.name = "id",
         .type = Id(),
         .doc = "its name in statistics and messages, and for those who move its queues",
         .unset = "vsock0"},
        [](auto& vsock) -> auto& { return vsock.id; }},
       {{.name = "iothread",
         .type = Id(),
         .doc = "the I/O thread that serves it",
         .unset = "the first"},
        [](auto& vsock) -> auto& { return vsock.io_thread; }},
       {{.name = "max-connections",
         .type = Whole(1, 65536),
         .unit = "connections",
         .doc = "how many connections there may be at once; one takes a descriptor, and up to 256 "
                "KiB of memory while its host program does not read"},
        [](auto& vsock) -> auto& { return vsock.max_connections; }},
       {{.name = "watch-agent",
         .type = Plain(OptionKind::kSwitch),
         .doc = "whether events tell when the guest's agent answers, and when no longer"},
        [](auto& vsock) -> auto& { return vsock.watch_agent; }}}};
  return table;
}

}  // namespace ringside
