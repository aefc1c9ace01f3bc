// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package systemd asks systemd to start, limit and stop slices, over D-Bus. It writes no cgroup file and kills no
// process: what systemd has no property for is left to the caller.
//
// # Model
//
// A [Slice] is a transient unit, which systemd forgets when it is stopped. [Client.Ensure] starts it, or sets what
// differs where it runs; [Client.Stop] stops it. Both wait until systemd says that its job is done. [Properties]
// translates limits.
//
// Systemd delegates the subtree of services and scopes, not of slices: there is no Delegate= here. What systemd has a
// property for must be set through it, because systemd writes its own idea of a limit again whenever it comes by. Other
// files of a slice it leaves alone, but for memory.oom.group, which it sets to 0.
//
// # Deadlines
//
// No call waits longer than [Options.CallTimeout], and no job longer than [Options.JobTimeout], whatever the bus does.
// A client connects when it is first used. It connects anew, backing off, when the connection is lost: systemd drops
// its own when it re-executes itself, a message bus when it is restarted. A call that was cut off by that is made
// again; all of them may be. The result of a job is a signal, and a signal can be lost with a connection, so that the
// state of the unit is asked for when none has come for a while.
//
// # Errors
//
// Errors of [Client] name the unit. One that wraps [context.DeadlineExceeded] says that systemd did not answer or did
// not finish in time; it may still do what it was asked.
//
// # Where systemd is reached
//
// First at the message bus, then at systemd's own socket, which is for root alone and needs no dbus-daemon.
//
// # What it is tested against
//
// Both ways against systemd 252 as PID 1 on cgroup v2, restarted and re-executed meanwhile, see hack/vm/systemd.sh; and
// against the server of package systemdtest, which speaks D-Bus, records calls and fails on demand. The properties for
// cgroup v1 and for older versions are tested against that server only.
package systemd
