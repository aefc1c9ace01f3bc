// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package process is a container runtime that runs containers as plain processes of this host, with logs, exit codes and
// restarts, and WITHOUT ISOLATION. There are no images and no root file systems: a process has the access of its user on the
// host.
//
//	func main() {
//		process.Main() // must come first: the program may have been started as a shim
//		...
//		runtime, err := process.Open("/var/lib/agent", process.Options{})
//
// It is meant for devices without a container runtime, for tests and for demonstrations, and needs no daemon and no root. As
// root, [Options] give pods their own network, and containers mounts and cgroups; these do not confine a hostile program. [Open]
// fails unless [Main] was called; tests call Main in TestMain.
//
// # Model
//
// A sandbox is a record. A container is a process that leads its own session. A shim starts it: a second, small process, which is
// this program executed again and taken over by [Main]. The shim writes the container's log, reaps every descendant (it is a
// child subreaper), kills descendants that outlive the container's process, and records the exit code. The agent can therefore be
// killed, upgraded and restarted without losing containers, output or exit codes: [Open] finds them again. Under systemd the
// agent's unit needs KillMode=process.
//
// If a shim is killed, the kernel kills the container's process (PR_SET_PDEATHSIG), and the agent kills every descendant with
// NODEAGENT_CONTAINER_ID in its environment. The container then has exit code 137 and reason "Unknown".
//
// # Configs
//
//   - The process is Command and Args of the config; a container without a command is refused, because there is no image.
//     Every image name counts as present.
//   - The environment is that of the config, a default PATH, and NODEAGENT_CONTAINER_ID. Nothing is inherited.
//   - A root agent applies user and groups; a user without a group gets its group in the host's user database. NoNewPrivs is applied.
//   - Without Options.Network, sandboxes have no address, a container port is a host port, and host name and DNS have no effect.
//   - Termination messages are not read: use terminationMessagePolicy FallbackToLogsOnError.
//   - These fields are refused with [errors.ErrUnsupported], or ignored with Options.IgnoreUnsupported: mounts and devices at
//     another path than on the host (see Options.Mounts), cpusets without Options.Cgroups, image mounts, CDI devices, user
//     namespaces, sysctls, other users if the agent is not root, host ports that differ from the container port, and runtime handlers.
//   - Fields that only confine a program have no effect: other resources and cgroup parents (see Options.Cgroups), read-only root
//     file systems, capabilities, seccomp, AppArmor, SELinux, masked paths, privileged.
//
// # Mounts
//
// With Options.Mounts the namespace of a container follows the mounts of the host; the host sees only mounts with propagation
// Bidirectional. A missing host path is created as a directory; a missing device is an error. A missing mount point inside a
// volume is created there. Elsewhere a tmpfs with the same entries replaces the deepest existing directory, for this container
// only. Symbolic links of the host are followed to a mount point. Refused are links in a volume, a mount over "/", a missing
// mount point in a Bidirectional mount or in a read-only volume, and the replacement of a directory with over 1,000 entries.
//
// # Concurrency and errors
//
// All methods may be called concurrently. The package starts goroutines only within calls and does not poll: a shim's pidfd
// signals the exit of its container (Linux 5.4). Exited shims are reaped by the call that notices the exit, at the latest List.
//
// A stop signal that cannot be sent, for example without a free file descriptor, is retried for the grace period; SIGKILL
// follows. The grace period starts when the signal has been sent. A container without a shim and without an exit record is in
// state Unknown. Lists and event streams examine it again after 50 ms to 30 s; it can be stopped.
//
// A network that cannot be torn down, or a cgroup that cannot be removed, keeps its sandbox or container: repeat the call. A
// container whose command cannot be started exits with code 128 and reason "StartError".
//
// [Open] fails if an option needs root and the agent is not root. DIFFERENCES.md lists the differences from containerd.
// Test kit: package critest has the conformance suite that this runtime passes, and a runtime in memory.
package process
