// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package process is a container runtime without containers: what a pod asks for runs as plain processes of this
// machine, with their logs, exit codes and restarts, and NO ISOLATION whatsoever. There are no images, no
// namespaces, no root file system, no limits: a process sees and may do what the agent's user may. It needs no
// daemon and no root, and is meant for devices without a container runtime, and for tests and demonstrations.
//
//	func main() {
//		process.Main() // first of all: the program may have been started as a shim
//		...
//		runtime, err := process.Open("/var/lib/agent", process.Options{})
//
// Tests that open it call [Main] first in TestMain. [Open] refuses a program that does not.
//
// # Model
//
// A sandbox is a record. A container is a process that leads its own session, kept by a shim: a second, small
// process, which is this very program executed anew and caught by [Main]. The shim writes the container's log,
// reaps every descendant (it is a child subreaper), kills those that the container's process leaves behind, and
// records the exit code. So the agent can be killed, upgraded and started again: containers run on, no output and
// no exit code is lost, and [Open] finds everything. Under systemd the agent's unit needs KillMode=process for that.
//
// A shim that is killed takes its container with it: the kernel kills the container's process (PR_SET_PDEATHSIG),
// the agent what descends from it and still has NODEAGENT_CONTAINER_ID in its environment. The container has then
// exited with code 137 and reason "Unknown", as has one that ran when the machine went down.
//
// [Runtime] is a [cri.Runtime] and a [cri.PodLister], [cri.EventStreamer], [cri.Execer], [cri.LogReopener],
// [cri.StatsLister], [cri.StatusReporter], [cri.Images] and [cri.Puller]. Its List is complete. Interactive
// sessions and changes of resources are not offered.
//
// # What becomes of a config
//
//   - Command and arguments are the process; there is no image to take one from, so a container without is refused.
//     The image's name is recorded. Every name is an image that is present and pulls at once.
//   - The environment is the config's, a default PATH where it has none, and NODEAGENT_CONTAINER_ID. Nothing is
//     inherited from the agent.
//   - User and groups are the config's if the agent is root. A user without a group gets its own from the host's
//     user database, never the agent's. NoNewPrivs is honoured.
//   - The network is the host's: sandboxes have no address, and a container port is a port of the host. Host name
//     and DNS settings have no effect. Probes over the network need an address all the same: that of the node, from
//     podspec.Options.HostIPs, such as 127.0.0.1.
//   - So are its files: what a program writes to /dev/termination-log is in the host's, and nobody reads it. Pods that
//     have last words leave them in their logs, with terminationMessagePolicy FallbackToLogsOnError.
//   - A mount or device at its own path is there anyway. Elsewhere it is refused, as are image mounts, CDI devices,
//     a TTY, user namespaces, sysctls, other users when the agent is not root, a host port that differs from the
//     container's, and runtime handlers: the program would not find what its pod promised. The error wraps
//     [errors.ErrUnsupported]; Options.IgnoreUnsupported turns it into a warning.
//   - What only confines a program has no effect: resources, cgroup parents, read-only mounts and root file systems, capabilities,
//     seccomp, AppArmor, SELinux, masked paths. Privileged has none either.
//
// # Differs from containerd
//
// The stop signal goes to the process group, not to the first process alone, so that a shell does not outlive it
// by a grace period. A command that ExecSync runs leaves its background processes to the container, and does not
// wait for their output longer than 200 ms. A container that never says so is not OOMKilled: without a cgroup,
// nobody knows.
//
// # Concurrency
//
// All methods may be called from many goroutines. The package starts none but those within a call, and nothing
// polls: the end of a container is learned from its shim's pidfd, which needs Linux 5.4. The shims that this
// agent started are reaped by the calls that notice their end, at the latest by List.
//
// # Errors
//
// A stop signal that cannot be sent, because the agent has no descriptor free or the shim does not answer, is sent again
// for as long as the grace period is; what comes after that is SIGKILL. The grace period begins when the signal has
// arrived. A container of which an agent that starts can find neither a shim nor an end is in state Unknown; it is looked
// at again, by lists and for event streams, after 50 ms to 30 s, and can be stopped.
//
// An exit record is on the disk before the container counts as exited, with all that it takes to find it there after a
// loss of power. In the state directory, what has a name that this package does not give is left alone.
//
// Other errors are as package cri has them. A command that cannot be started leaves its container exited with code 128 and reason
// "StartError".
package process
