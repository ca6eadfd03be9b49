// What the calls of the control interface do (api/api_calls.cc). Each gets what it was given,
// checked, and returns the JSON of its answer, null if there is nothing to say.
//
// Threads: any. Those that may wait, for a thread of the machine or for storage, are operations.
#pragma once

#include "absl/status/statusor.h"
#include "api/api_call.h"
#include "api/machine_control.h"

namespace ringside {

using ApiHandler = absl::StatusOr<Json>(MachineControl& control, const ApiArguments& given);

// machine_handlers.cc
ApiHandler GetVersion, GetDocument, GetMachine, GetConfig, PutConfig, StartMachine, PauseMachine,
    ResumeMachine, SaveMachine, RecordWorkingSet, PressPowerButton, ShutDownMachine, StopMachine,
    GetStatistics;
// device_handlers.cc
ApiHandler ListDisks, GetDisk, ResizeDisk, SwapDisk, ListDevices, GetDevice, MoveQueue, SetTrace,
    GetLatencies;
// network_handlers.cc
ApiHandler ListNetworks, GetNetwork, SetLink;
// throttle_handlers.cc
ApiHandler SetThrottle, SetNetworkThrottle, ListThrottleGroups, SetGroupThrottle;
// guest_handlers.cc
ApiHandler PingAgent, ExecInGuest, CopyIn, CopyOut, SetGuestClock, RenewRandomness, ShutDownGuest;
// io_thread_handlers.cc
ApiHandler ListIoThreads, GetIoThread, AddIoThread, ChangeIoThread, RemoveIoThread, ExplainIoThread;

// The fields of AddIoThread, and those of ChangeIoThread: how a thread polls.
std::vector<ApiField> IoThreadFields();
std::vector<ApiField> PollFields();
// guest_calls.cc: a part of the table; and an answer of ExecInGuest, for its schema.
std::vector<ApiCall> GuestCalls();
Json CommandEndSample();
// Those of SetThrottle and SetGroupThrottle.
std::vector<ApiField> ThrottleFields();

}  // namespace ringside
