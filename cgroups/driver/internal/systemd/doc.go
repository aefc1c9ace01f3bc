// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package systemd starts, limits and stops systemd slices over D-Bus. It writes no cgroup file and kills no process: limits
// without a systemd property are left to the caller.
//
//	c := systemd.New(systemd.Options{})
//	defer c.Close()
//	props, resources, err := systemd.Properties(resources, false, formula)
//	started, err := c.Ensure(ctx, systemd.Slice{Unit: "kubepods.slice", Parent: "-.slice", Properties: props})
//	err = c.Stop(ctx, "kubepods.slice")
//
// A [Slice] is a transient unit, which systemd forgets when it is stopped. [Client.Ensure] starts it, or changes the properties
// of a running slice. Both methods wait for the systemd job. [Properties] converts limits to properties.
//
// There is no Delegate= for slices. Limits that have a property must be set through it, because systemd rewrites the file of the
// property at times. systemd does not touch other files of a slice, except memory.oom.group, which it resets to 0.
//
// # Deadlines
//
// A call takes at most [Options.CallTimeout], and a job at most [Options.JobTimeout]. A client connects at its first call. It
// reconnects with a back-off when the connection is lost, for example because systemd re-executes itself or dbus-daemon restarts,
// and then repeats the call. Every call here may be repeated. The result of a job is a signal, which can be lost with the
// connection: if none arrives, the client reads the state of the unit.
//
// # Errors
//
// Errors of [Client] name the unit. If one wraps [context.DeadlineExceeded], systemd did not reply or finish in time, and may
// still execute the request.
//
// # Sockets
//
// The client tries the system bus first, then systemd's private socket, which only root can use and which works without
// dbus-daemon.
//
// # Tests
//
// Both sockets are tested against systemd 252 as PID 1 on cgroup v2 with restarts and re-executions (hack/vm/systemd.sh), and
// against package systemdtest. Properties for cgroup v1 and for older versions are tested only against systemdtest.
package systemd
