// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package critest is the test kit of package cri: a container runtime in memory, wrappers that inject faults into any runtime,
// and conformance suites for implementations. It starts no processes and writes no files.
//
// # The runtime
//
// [New] returns a [Runtime] that behaves like containerd for a caller of the CRI: it reserves names, assigns and releases
// addresses, requires images, kills the containers of a stopped sandbox and streams events. States, exit codes, reasons and
// timestamps are those of containerd. Each container plays a [Script]:
//
//	rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
//		"job":      critest.ExitAfter(3*time.Second, 0),
//		"stubborn": critest.IgnoreTERM(),
//	})})
//
// Time is that of package time, so that an hour passes at once in a testing/synctest bubble. The runtime starts no goroutines
// except the callbacks of one timer, and needs no Close. It is deterministic for calls in a fixed order: simultaneous events
// occur in the order in which they were scheduled, IDs consist of names, and lists are in order of creation.
//
// [Runtime.Kill], [Runtime.KillWith] and [Runtime.BreakStreams] simulate failures; [Runtime.Calls] returns the recorded calls.
// [SummaryRuntime] omits details from lists and implements cri.Inspector, as containerd does. [CRIO] responds like CRI-O where
// the two differ.
//
// # Not modelled
//
// Namespaces, cgroups, mounts, devices, security and DNS are accepted and ignored; addresses of sandboxes do not respond. There
// are no processes inside containers, no log files, no registries, no normalisation of image names, no disk usage and no restart
// of the runtime. Sessions do only what their script plays. Calls take no time unless a script, a fault or an [Interceptor]
// delays them.
//
// # Faults
//
// [Faults] wraps a cri.Runtime and can make each call fail, hang, be delayed, return wrong results, or take effect and lose its
// response. [Interceptor] does this for a runtime with all its capabilities, and adds latency. Tests of an agent should use a
// SummaryRuntime behind an Interceptor: a runtime that responds at once and never hangs hides many faults of an agent.
//
// [SessionFaults] is a [cri.SessionRunner] whose sessions can be delayed, hang or be cut. Its streams have no CloseWrite, and
// each Read and Write has one delay regardless of its length:
//
//	f := &critest.SessionFaults{Runner: runtime, CutAfter: func(op, id string) int64 { return 1000 }}
//
// # The suites
//
// [TestRuntime] checks an implementation of cri.Runtime against the documentation of package cri. A failure quotes the sentence
// that is violated. [TestSessions] does this for a cri.SessionRunner. The containers of the suites run shell scripts;
// [SuiteScript] and [SessionSuiteScript] play these scripts on a Runtime.
package critest
