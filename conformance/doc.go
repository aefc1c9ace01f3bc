// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance compares nodeagent with the kubelet: code of kubelet 1.37.1 and packages of this repository get equal
// generated inputs, and must return equal results. It is a module of its own, so that users of nodeagent do not depend on
// k8s.io/kubernetes. It tests no real node: no cgroup is written.
//
//	make test          # 200,000 inputs for each comparison; INPUTS=n, SEED=n (0: new inputs), ARGS=-v, ARGS=-run=...
//	make unit          # the kubelet's own unit tests of its CPU, memory and topology managers, run on packages of this repository
//	make fuzz          # every comparison with the fuzzer for FUZZTIME
//	make speed         # how many times faster nodeagent is, on equal pods in one run
//	make probes        # the cost of 10,000 probes compared with the kubelet's, and their ports
//	make bench         # speed as Go benchmarks
//
// # Comparisons
//
// A [Comparison] creates an input from bytes ([Choices]), calls both functions with their own copies, and compares the results.
// It also fails if nodeagent panics or writes to its input. A failing input is minimized. The report has the input as YAML, and
// the lines in which the results differ.
//
// An intended difference is an [Exception] with a name, a reason and a selection of inputs. For other inputs the results must be
// equal. For selected inputs the result of nodeagent must be that of the exception. An exception without any difference fails the
// test, so that the list stays correct. With -v the test prints how often each exception occurred. Names of unintended
// differences that are not fixed yet start with "open".
//
// Pods are compared by the actions on them: the kubelet's manager syncs a generated pod on a recording CRI runtime until a
// restart of all containers is complete, and nodeagent plans for the pod. The report has the input as lines for a scenario of
// package lifecycle.
//
// Probers run against real servers and commands. A case with an intended difference names its reason, and fails if both sides
// agree. Lifecycle hooks run against real servers and a runtime behind a socket, whose recorded calls are compared, with the
// container statuses. Pods with preStop hooks are terminated in virtual time, by the kubelet's manager and by a Reconciler.
//
// Volume payloads, directory trees and subPaths are written to disk twice, and the results on disk are compared. Volumes with
// claims run through the kubelet's populator, states of the world and operations, with plugins that do nothing. As root, all
// tests run in their own mount namespace.
//
// # The kubelet's own code
//
// No code of the kubelet is copied. Much of it is unexported, including methods of unexported types, which go:linkname reaches
// only with a copy of their layout. So the files in _overlay are compiled into its packages: each exports a few functions, or
// sets the fields of a manager like its constructor. The option -overlay of the go command does not work below the module cache.
// The Makefile therefore replaces the modules by links to their directories, in a copy of go.mod, and passes both files in
// GOFLAGS. Without them the tests do not compile.
//
// make unit runs test files of the kubelet unchanged. The files in _unit declare functions of the kubelet again, and call
// packages of this repository in them; kubelettests compiles them into the kubelet's packages in place of the kubelet's functions.
// A test that fails must be in the exceptions.txt of its package with a reason, and a test in that file must fail.
//
// The host is fixed in the overlay, too: the cgroup version and the sizes of huge pages are set, so that both cgroup versions are
// compared on any machine. Feature gates have the defaults of 1.37, except that the alpha gate of qosReserved is on. The version
// of opencontainers/cgroups is that of the kubelet.
package conformance
