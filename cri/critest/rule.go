// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

// The sentences of package cri's documentation that the suite holds a runtime to, with the name of what they
// document in front. A test of this package finds each of them there.
const (
	ruleConcurrent = "cri: Every method of every interface may be called from many goroutines at once."
	ruleConfig     = "cri: A config handed to a runtime is neither kept nor changed."
	ruleNotFound   = "cri: An object that is not there is [ErrNotFound]"
	ruleDeadline   = "cri: a deadline is [context.DeadlineExceeded]"
	ruleError      = "cri: All are found with [errors.Is] on an [*Error], which also names the call and the object."
	ruleRepeat     = "cri: Stopping or removing what is already stopped or gone is success, so that both can be repeated."
	ruleExists     = "ErrAlreadyExists: another object holds the name: of a sandbox its pod and attempt, of a container its name and attempt"

	ruleList       = "Lister: List returns every sandbox and container of the runtime, dead ones included."
	ruleListTime   = "Lister: Snapshot.Time is taken before the runtime is asked."
	ruleListPod    = "PodLister: ListPod returns the sandboxes and containers of the pod with this UID."
	ruleListPodNil = "PodLister: A pod that the runtime does not know is a Pod without sandboxes and containers, not an error."
	ruleStatus     = "Inspector: returns the container with all fields, or [ErrNotFound]."

	ruleRunSandbox      = "Sandboxes: RunSandbox creates and starts a sandbox and returns its ID."
	ruleStopSandbox     = "Sandboxes: StopSandbox kills what still runs in the sandbox and tears down its network."
	ruleStopSandboxGone = "Sandboxes: It may be repeated; a sandbox that is gone is success."
	ruleRemoveSandbox   = "Sandboxes: RemoveSandbox removes the sandbox and every container in it, by force if they run."
	ruleSandboxState    = "SandboxState: is whether a sandbox can hold running containers."
	ruleIPs             = "Sandbox.IPs: the primary address first; none on the host's network"

	ruleCreate     = "Containers: CreateContainer creates a container in a sandbox and returns its ID."
	ruleStart      = "Containers: StartContainer starts a created container."
	ruleStop       = "Containers: StopContainer sends the stop signal, waits up to grace, then kills, and returns when the container has exited."
	ruleStopGrace  = "Containers: Grace has a resolution of one second, rounded up; zero kills at once."
	ruleStopGone   = "Containers: A container that is gone or has exited is success."
	ruleRemove     = "Containers: RemoveContainer removes a container, by force if it runs."
	ruleRemoveGone = "Containers: One that is gone is success."
	ruleOneLife    = "ContainerState: is the state of a container instance: created, running, exited."
	ruleExitCode   = "Container.ExitCode: valid in state ContainerExited; 128+n where signal n ended it"
	ruleReason     = "Container.Reason: one word, such as Completed, Error or OOMKilled"
	ruleStartedAt  = "Container.StartedAt: zero before it started"
	ruleFinishedAt = "Container.FinishedAt: zero before it exited"
	ruleLogPath    = "ContainerConfig.LogPath: relative to SandboxConfig.LogDirectory; empty: no log"

	ruleReopen        = "LogReopener: makes the runtime open the container's log file anew."
	ruleReopenRunning = "LogReopener: The container must be running."
	ruleVersion       = "StatusReporter: Version returns who the runtime is."
	ruleConditions    = "Condition: The conditions that every runtime reports in a [Status]."
	ruleStats         = "StatsLister: ContainerStats returns the usage of every running container."

	ruleEvents      = "EventStreamer: reports changes as they happen."
	ruleEventsEnd   = "EventStreamer: until ctx ends, the stream breaks or fn returns an error, and returns the cause; it never returns nil."
	ruleExec        = "Execer: ExecSync runs a command to its end."
	ruleExecCode    = "Execer: A non-zero exit code is a result, not an error."
	ruleExecTimeout = "Execer: a command that runs out of time is killed and the error is [context.DeadlineExceeded]."

	ruleExecEnd         = "SessionRunner: It returns when the command has ended and all that it wrote has been written to s, however slowly that goes"
	ruleSessionExecCode = "SessionRunner: a non-zero exit code is a result, not an error."
	ruleExecLeaves      = "SessionRunner: When ctx ends, the command is killed with what it started, and the error is the cause of ctx."
	ruleRunning         = "SessionRunner: RunExec runs a command in a running container."
	ruleTTY             = "Session: TTY gives the command a terminal, whose one output is Stdout"
	ruleResize          = "Session: Resize has the sizes of the terminal, the newest last."
	ruleStdin           = "Session: nil: empty"
	ruleAttach          = "SessionRunner: It returns nil when the container has ended and its output is written, and the cause of ctx when that ends; the container goes on."
	ruleStdinEnds       = "SessionRunner: About a second after the end of Stdin it returns nil too, unless that ends the container's own stdin (StdinOnce)."
	ruleAttachSlow      = "SessionRunner: A client never delays the container: one that is too far behind is ended with an error."
	ruleStdinOnce       = "ContainerConfig.StdinOnce: close stdin when the first client leaves"
	ruleForward         = "SessionRunner: RunPortForward connects conn to a port on the loopback of a sandbox"
	ruleForwardEnd      = "SessionRunner: It closes conn."
)
