// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package critest is the test kit of package cri: a container runtime in memory whose containers play scripts, a
// wrapper that injects faults into any runtime, and the conformance suites that every runtime passes. It runs no
// process and keeps nothing on disk.
//
// # The runtime
//
// [New] returns a [Runtime] that behaves as containerd does in all that a caller of the CRI can see: reserved
// names, states, exit codes and reasons, timestamps, what a stopped sandbox does to its containers, addresses
// given out and taken back, images that must be present, events. What a container does is a [Script]:
//
//	rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
//		"job":      critest.ExitAfter(3*time.Second, 0),
//		"stubborn": critest.IgnoreTERM(),
//	})})
//
// Time is that of package time, so inside a testing/synctest bubble an hour passes at once. The runtime starts no
// goroutine but the short calls of one timer and needs no Close. What is due at the same instant happens in the
// order in which it was planned, IDs are made of names, and lists are in order of creation: what a test sees does
// not depend on maps or on the scheduler, as long as its own calls come in one order.
//
// [Runtime.Kill], [Runtime.KillWith] and [Runtime.BreakStreams] do what nobody asked the runtime for; [Runtime.Calls]
// tells what it was asked for. [SummaryRuntime] offers the same runtime with the summary lists and the Inspector that containerd has, [CRIO]
// with the answers that CRI-O gives where they differ.
//
// # What it does not model
//
// Namespaces, cgroups, mounts, devices, security and DNS (accepted and ignored, though a network of its own gives
// a sandbox an address that nothing answers at); processes inside a container; log files; what of a session its script does not play;
// registries and the normalisation of image names; disk usage; the time that calls take, unless a script, a fault or an
// [Interceptor] says so; recovery from a restart of the runtime.
//
// # Faults
//
// [Faults] wraps any cri.Runtime and lets each call fail, hang, come late, lie, or take effect and lose its answer.
// [Interceptor] wraps a runtime with all its capabilities, gives each call a time that it is under way, and lets it
// go wrong in the same ways. An agent that is tested on a runtime which answers at once and never hangs has not been tested
// on what it will run on: give its tests a SummaryRuntime behind an Interceptor.
//
// [SessionFaults] is a [cri.SessionRunner] whose sessions come late, hang, or are cut. Its streams have no CloseWrite, and each Read
// and Write has one delay, however long it is:
//
//	f := &critest.SessionFaults{Runner: runtime, CutAfter: func(op, id string) int64 { return 1000 }}
//
// # The suites
//
// [TestRuntime] checks an implementation of cri.Runtime against the sentences of package cri's documentation, and
// names the broken one when it fails. [TestSessions] does this for a cri.SessionRunner. Their containers are shell scripts;
// [SuiteScript] and [SessionSuiteScript] play these on a Runtime.
package critest
