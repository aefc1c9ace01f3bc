// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance compares nodeagent with the kubelet. The same generated input goes to the code of kubelet 1.37.1
// and to the packages here, and the answers must be the same. It is a module of its own, so that nobody who imports
// nodeagent gets k8s.io/kubernetes. It says nothing about what happens on a real node: no cgroup is written.
//
//	make test          # 200,000 inputs for each comparison; INPUTS=n, SEED=n (0: new inputs), ARGS=-v, ARGS=-run=...
//	make fuzz          # every comparison under the fuzzer for FUZZTIME
//	make speed         # how many times faster ours is, on the same pods in the same run
//	make probes        # what 10,000 probes cost beside the kubelet's, and their ports
//	make bench         # the same as Go benchmarks
//
// # Comparisons
//
// A [Comparison] makes an input out of bytes ([Choices]), calls both sides, each with an input of its own, and compares.
// It also fails where ours panics or writes to its input. Bytes that make a difference are shortened as long as they
// still do; the report has the input as YAML and the lines in which the answers differ.
//
// A difference that is meant is an [Exception]: a name, a reason, and the inputs it holds for. Outside of these the
// answers are equal; inside, ours is what the exception wants; and an exception that makes no difference any more fails
// the test, so that the list stays true. With -v the test prints how often each occurred.
//
// Pods are compared by what becomes of them: the kubelet's own manager syncs a generated pod on a CRI runtime that keeps
// a record, turn by turn until a restart of all containers is through, and nodeagent plans for the same pod. The report
// has the input as lines of a scenario, to be put among those of package lifecycle. Differences that are not meant, and
// wait to be mended, have names that begin with "open".
//
// Probers are compared otherwise: each is asked about the same real server or command as the kubelet's, and a dialogue
// in which the two are meant to differ says so by name, and fails when they no longer do.
//
// Hooks are run against the same real servers and the same runtime behind a socket, which keep a record of what they are
// asked; that record is compared, and what the status of the container says. Pods with preStop hooks are ended in
// virtual time, by the kubelet's manager and by a Reconciler.
//
// Payloads, trees and subPaths of volumes are written, walked and bound twice, by the kubelet's code and by ours, and what is
// on disk then is compared. Volumes with claims go through the kubelet's populator, its states of the world and its operations, on
// plugins that make nothing. As root, all tests run in a mount namespace of their own.
//
// # The kubelet's own code
//
// Nothing of the kubelet is copied. Much of it is unexported, and methods on unexported types at that, which go:linkname
// reaches only with a copy of their layout. So the files in _overlay are built into its packages: each opens a few
// functions, or fills in the fields of a manager as its constructor does, and is checked by the compiler. The go command
// has an option for that, -overlay, which it refuses below its module cache; the Makefile therefore replaces the modules
// by links to their directories there, in a go.mod beside the one of the module, and hands both files to the go command
// in GOFLAGS. Without them the tests do not compile.
//
// The host is fixed the same way: the kubelet is told which version of cgroups it has and which sizes of huge pages, so
// that both versions are compared on any machine. Gates are those of 1.37 by default, but that of qosReserved, an alpha
// which is on. opencontainers/cgroups is the version that the kubelet is built with.
package conformance
