// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

// The sentences of package cri's documentation that the suites check, each after the name of the documented type. A test of
// this package verifies that the documentation contains them.
const (
	ruleConcurrent = "cri: All methods of all interfaces may be called concurrently."
	ruleConfig     = "cri: A runtime neither keeps nor changes a config passed to it."
	ruleNotFound   = "cri: [ErrNotFound] if the object does not exist"
	ruleDeadline   = "cri: [context.DeadlineExceeded] at a deadline"
	ruleError      = "cri: Every error is an [*Error], which also names the call and the object."
	ruleRepeat     = "cri: Stopping a stopped object or removing a removed one succeeds, so both calls can be repeated."
	ruleExists     = "ErrAlreadyExists: another object has the name: of a sandbox its pod and attempt, of a container its name and attempt"

	ruleList       = "Lister: List returns every sandbox and container of the runtime, including stopped ones."
	ruleListTime   = "Lister: Snapshot.Time is taken before the call to the runtime."
	ruleListPod    = "PodLister: ListPod returns the sandboxes and containers of the pod with this UID."
	ruleListPodNil = "PodLister: For a pod unknown to the runtime it returns a Pod without sandboxes and containers, not an error."
	ruleStatus     = "Inspector: returns the container with all fields, or [ErrNotFound]."

	ruleRunSandbox      = "Sandboxes: RunSandbox creates and starts a sandbox and returns its ID."
	ruleStopSandbox     = "Sandboxes: StopSandbox kills the running containers of the sandbox and tears down its network."
	ruleStopSandboxGone = "Sandboxes: It may be repeated and succeeds for a sandbox that does not exist."
	ruleRemoveSandbox   = "Sandboxes: RemoveSandbox removes the sandbox and every container in it, by force if they run."
	ruleSandboxState    = "SandboxState: reports whether a sandbox can run containers."
	ruleIPs             = "Sandbox.IPs: primary address first; none on the host network"

	ruleCreate     = "Containers: CreateContainer creates a container in a sandbox and returns its ID."
	ruleStart      = "Containers: StartContainer starts a created container."
	ruleStop       = "Containers: StopContainer sends the stop signal, waits up to grace, then kills, and returns when the container has exited."
	ruleStopGrace  = "Containers: It rounds grace up to a whole second; zero kills at once."
	ruleStopGone   = "Containers: It succeeds for a container that has exited or does not exist."
	ruleRemove     = "Containers: RemoveContainer removes a container, by force if it runs."
	ruleRemoveGone = "Containers: It succeeds for a container that does not exist."
	ruleStates     = "ContainerState: is the state of a container instance. It only advances: created, running, exited."
	ruleExitCode   = "Container.ExitCode: valid in state ContainerExited; 128+n if signal n killed it"
	ruleReason     = "Container.Reason: one word, such as Completed, Error or OOMKilled"
	ruleStartedAt  = "Container.StartedAt: zero before it started"
	ruleFinishedAt = "Container.FinishedAt: zero before it exited"
	ruleLogPath    = "ContainerConfig.LogPath: relative to SandboxConfig.LogDirectory; empty: no log"

	ruleReopen        = "LogReopener: makes the runtime reopen the container's log file by its path."
	ruleReopenRunning = "LogReopener: The container must be running."
	ruleVersion       = "StatusReporter: Version returns the name and the versions of the runtime."
	ruleConditions    = "Condition: The condition types that every runtime reports in a [Status]."
	ruleStats         = "StatsLister: ContainerStats returns the usage of every running container."

	ruleEvents      = "EventStreamer: streams changes of containers and sandboxes."
	ruleEventsEnd   = "EventStreamer: It returns a non-nil error when ctx ends, the stream breaks or fn returns an error."
	ruleExec        = "Execer: ExecSync runs a command until it exits."
	ruleExecCode    = "Execer: A non-zero exit code is not an error."
	ruleExecTimeout = "Execer: It kills the command after timeout, rounded up to a whole second, and returns [context.DeadlineExceeded]."

	ruleExecEnd         = "SessionRunner: It returns when the command has exited and all its output is written to session, however slow its client is."
	ruleSessionExecCode = "SessionRunner: A non-zero exit code is not an error."
	ruleExecLeaves      = "SessionRunner: When ctx ends, RunExec kills the command and its child processes, and returns the cause of ctx."
	ruleRunning         = "SessionRunner: RunExec runs a command in a running container."
	ruleTTY             = "Session: TTY allocates a terminal for the command. All output goes to Stdout"
	ruleResize          = "Session: Resize yields terminal sizes; the latest applies."
	ruleStdin           = "Session: nil: empty"
	ruleAttach          = "SessionRunner: It returns nil when the container has exited and its output is written. When ctx ends, it returns the cause of ctx, and the container continues."
	ruleStdinEnds       = "SessionRunner: About a second after the end of Stdin it returns nil too, unless this closes the container's stdin (StdinOnce)."
	ruleAttachSlow      = "SessionRunner: A slow client never delays the container: a client that is too far behind gets an error."
	ruleStdinOnce       = "ContainerConfig.StdinOnce: close stdin when the first attached client disconnects"
	ruleForward         = "SessionRunner: RunPortForward connects conn to a port on the loopback interface of a sandbox"
	ruleForwardEnd      = "SessionRunner: It closes conn."
)
