// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package process is a container runtime without containers: what a pod asks for runs as plain processes of this host,
// with their logs, exit codes and restarts, and NO ISOLATION whatsoever. There are no images, no namespaces, no root file
// system, no limits: a process sees and may do what the agent's user may. It needs no daemon and no root, and is meant for
// devices without a container runtime, and for tests and demonstrations.
//
//	func main() {
//		process.Main() // first of all: the program may have been started as a shim
//		...
//		runtime, err := process.Open("/var/lib/agent", process.Options{})
//
// Tests that open it call [Main] first in TestMain. [Open] fails in a program that does not call it.
//
// # Model
//
// A sandbox is a record. A container is a process that leads its own session, started by a shim: a second, small process,
// which is this very program executed again and taken over by [Main]. The shim writes the container's log, reaps every
// descendant (it is a child subreaper), kills descendants that outlive the container's process, and records the exit code.
// So the agent can be killed, upgraded and restarted: containers keep running, no output and no exit code is lost, and
// [Open] finds everything. Under systemd the agent's unit needs KillMode=process for that.
//
// When a shim is killed, so is its container: the kernel kills the container's process (PR_SET_PDEATHSIG), the agent every
// descendant that still has NODEAGENT_CONTAINER_ID in its environment. The container is then exited with code 137 and
// reason "Unknown", as is one that was running when the machine went down.
//
// [Runtime] is a [cri.Runtime] and a [cri.PodLister], [cri.EventStreamer], [cri.Execer], [cri.LogReopener],
// [cri.StatsLister], [cri.StatusReporter], [cri.Images] and [cri.Puller]. Its List is complete. Interactive sessions and
// changes of resources are not offered.
//
// What belongs here: processes of the host behind the interfaces of package cri. What does not: isolation of any kind.
//
// # What becomes of a config
//
//   - Command and arguments are the process; there is no image to take one from, so a container without a command is
//     refused. The image's name is recorded. Every image name counts as present, and pulls succeed at once.
//   - The environment is that of the config, a default PATH where it has none, and NODEAGENT_CONTAINER_ID. Nothing is
//     inherited from the agent.
//   - User and groups are those of the config if the agent is root. A user without a group gets its own from the host's
//     user database, never the agent's. NoNewPrivs is honoured.
//   - The network is the host's: sandboxes have no address, and a container port is a port of the host. Host name and DNS
//     settings have no effect. Network probes need an address nevertheless: that of the node, from podspec.Options.HostIPs,
//     such as 127.0.0.1.
//   - The files are the host's too: /dev/termination-log of a container is the host's file, and is not read. Pods that
//     have a termination message write it to their log, with terminationMessagePolicy FallbackToLogsOnError.
//   - A mount or device at its own path exists already. At another path it is refused, as are image mounts, CDI devices, a
//     TTY, user namespaces, sysctls, other users when the agent is not root, a host port that differs from the container's,
//     and runtime handlers: the program would not find what its pod promised. The error wraps [errors.ErrUnsupported];
//     Options.IgnoreUnsupported turns it into a warning.
//   - What only confines a program has no effect: resources, cgroup parents, read-only mounts and root file systems,
//     capabilities, seccomp, AppArmor, SELinux, masked paths, privileged.
//
// # Concurrency
//
// All methods may be called from many goroutines. The package starts no goroutines except within a call, and nothing
// polls: the exit of a container is learned from its shim's pidfd, which needs Linux 5.4. The shims that this agent started
// are reaped by the calls that notice their exit, at the latest by List.
//
// # Errors
//
// A stop signal that cannot be sent, because the agent has no free descriptor or the shim does not answer, is sent again
// for as long as the grace period; after that SIGKILL is sent. The grace period begins when the signal has been sent. A
// container for which an agent finds neither a shim nor an exit record is in state Unknown; it is examined again, by lists
// and for event streams, after 50 ms to 30 s, and can be stopped.
//
// An exit record is written to the disk, with the directories that lead to it, before the container counts as exited. Files
// in the state directory whose names this package does not give are left alone.
//
// Other errors are as package cri has them. A container whose command cannot be started is exited with code 128 and reason
// "StartError".
//
// # Differs from containerd
//
//   - The stop signal goes to the process group, not to the first process alone, so that a shell does not outlive it by a
//     grace period.
//   - A background process that a command of ExecSync leaves behind belongs to the container. ExecSync waits for its output
//     for 200 ms at most.
//   - No container is OOMKilled: without a cgroup that cannot be known.
//
// All are in DIFFERENCES.md.
//
// Test kit: package critest has the conformance suite that this runtime passes, and a runtime in memory.
package process
