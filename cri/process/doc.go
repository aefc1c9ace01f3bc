// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package process is a container runtime without containers: what a pod asks for runs as plain processes of this host,
// with their logs, exit codes and restarts, and NO WALL around them. There are no images and no root file system: a process
// sees and may do what its user may on the host. It needs no daemon and no root, and is meant for devices without a
// container runtime, and for tests and demonstrations. As root, [Options] give pods a network of their own, and containers
// mounts and limits; they put a program where it expects to be, and do not lock it in.
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
// [Runtime] is a [cri.Runtime] and a [cri.PodLister], [cri.EventStreamer], [cri.Execer], [cri.SessionRunner],
// [cri.LogReopener], [cri.StatsLister], [cri.StatusReporter], [cri.Images] and [cri.Puller]. Its List is complete. Changes of
// resources and checkpoints are not offered.
//
// Commands and containers may have a terminal. The output of a container's goes to its log as it is, as stdout. Clients that
// are attached get what is written from then on; none of them delays the container. A shim that an older agent has started
// knows no sessions: they fail with [errors.ErrUnsupported] until the container is restarted.
//
// What belongs here: processes of the host behind the interfaces of package cri, and the namespaces and cgroups that give a
// pod its address, volumes and limits. What does not: images, and what keeps a hostile program from the host.
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
//   - A mount or device at its own path exists already. At another path it is refused, as are image mounts, CDI devices,
//     user namespaces, sysctls, other users when the agent is not root, a host port that differs from the container's,
//     and runtime handlers: the program would not find what its pod promised. The error wraps [errors.ErrUnsupported];
//     Options.IgnoreUnsupported turns it into a warning.
//   - What only confines a program has no effect: resources, cgroup parents, read-only root file systems, capabilities,
//     seccomp, AppArmor, SELinux, masked paths, privileged.
//
// # With Options.Network
//
// A sandbox that is not on the host's network has a network namespace, addresses and host ports from a [Network], which
// it keeps until it is stopped, whatever becomes of the agent. Every process and command of it is in the namespace, with
// the pod's host name and its sysctls of the network. After the machine was started anew such a sandbox is not ready. /sys
// still shows the interfaces of the host.
//
// # With Options.Mounts
//
// Every container has a mount namespace: that of the host, as it is and becomes, with the mounts of its config, devices at
// other paths, and the DNS settings of its pod at /etc/resolv.conf. Nothing that is mounted there is seen on the host, but
// for mounts with propagation Bidirectional. All is bound recursively; read-only and recursively read-only mounts,
// propagation, noexec, nodev and nosuid are honoured. A host path that is missing is made, a directory; a device that is
// missing is an error.
//
// No file of the host is touched for a mount point that is missing. In another mount of the container it is made in the
// volume. Elsewhere the deepest directory that is there is replaced, for this container, by a tmpfs with the same entries,
// each of which is the host's; "/" too. What the host adds later to that very directory the container does not see, and
// what it adds there itself is gone at its end: a pod that works in such a directory needs the mount point on the host.
// Links of the host are followed to a mount point, those in a volume are refused. So is a mount over "/", in a mount that
// is Bidirectional, or in a read-only volume without the mount point, and a directory of more than 1,000 entries.
//
// # With Options.Cgroups
//
// Every container is born in a cgroup of its own, below the CgroupParent of its sandbox or else "nodeagent", with the
// resources of its config and its OOM score adjustment; its commands join it. What it leaves behind goes with the cgroup,
// even when its shim was killed. The shim is on the host; on cgroup v1 one thread of it is in the cgroup, and counts as a
// task there. A container of which the kernel killed a process for want of memory has reason "OOMKilled". A runtime that is
// opened without the option does not start such a container, and removes it only where its cgroup is gone.
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
// A network that cannot be torn down, or a cgroup that cannot be removed, keeps its sandbox or container: the call is made
// again. [Open] fails where an option takes root and the agent is not.
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
//   - A background process that a command leaves behind belongs to the container. Its output is waited for 200 ms at most.
//   - A command of a session, with what it has started, ends with its client.
//   - No container is OOMKilled without Options.Cgroups: it cannot be known.
//   - The root file system is the host's, with mounts on it.
//
// All are in DIFFERENCES.md.
//
// Test kit: package critest has the conformance suite that this runtime passes, and a runtime in memory.
package process
