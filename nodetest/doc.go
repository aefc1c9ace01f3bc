// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodetest is a node without a machine: an agent with all its engines on the simulated machine of package machine, with a container
// runtime and an API server in memory. Its pods use CPU, memory, disk and processes over time, and an hour passes in seconds. It starts no
// processes and writes no files. Use it to test schedulers and controllers, and to study QoS and evictions. A [Fleet] joins thousands of nodes to a
// real cluster in real time, as examples/virtualnode does; with Options.Kubeconfig a [Node] joins alone, with all requests of an agent.
//
//	n, err := nodetest.NewLoop(ctx, nodetest.Options{Machine: machine.Spec{CPUs: 2, Memory: 4 << 30}})
//	...
//	err = n.Add(
//		nodetest.NewPod("web", nodetest.Resources{CPU: "500m", Memory: "1Gi"}, "cpu=0.4 memory=512Mi"),
//		nodetest.NewPod("leak", nodetest.Resources{Memory: "100Mi"}, "memory=ramp(100Mi,8Gi,10m)"),
//	)
//	n.Advance(10 * time.Minute)
//	fmt.Println(n.Log().Evicted()) // [default/leak]
//
// # Pods
//
// Pods are objects of the API server, bound to the node. A [Behavior] says what a container uses, when it exits, and how it answers probes:
// Options.Behave returns it in code, Options.Selected has it by labels, or an annotation has it as text, see [AnnotationUsage]. A [Curve] is an
// amount over the age of the container. [ReadTrace] reads recorded usage, for example the public traces of Google and Alibaba.
// The machine and the limits of the cgroups decide what the container gets.
//
// # Time
//
// There are two kinds of nodes, with the same events:
//
//   - [Node] runs package agent. [New] is for a test in a bubble of testing/synctest, [Simulate] for an Example. Equal options and calls yield
//     the same [Log] if the test runs on one processor: runtime.GOMAXPROCS(1). An exception is an agent that starts while the node is under
//     pressure: it reads its pods and the signals at the same instant, in any order.
//   - [Loop] calls the decisions of the engines from a queue of events, without goroutines. It is the faster one, works in any program, and
//     its log never differs.
//
// A [Fleet] runs the events of many Loops in real time, and connects them to an API server.
//
// Of 200 random scenarios of 20 minutes 198 had the same entries for each pod, with times that differed by at most 150 ms, about the shortest time
// between two observations of the evictor. In two, an injected fault met another of the calls that were made at the same instant.
//
// Curves are evaluated once a second, and whenever a container starts. A node whose pods have no usage sleeps.
//
// # Scripts
//
// [RunScripts] runs tests that are written as text, with commands and their expected output. [PlayScript] lists the commands.
// [Play] plays a script for a study, which changes the options of the node and takes samples of it.
//
// # Faults
//
// [Node.Inject] makes runtime calls fail, hang or late. [Node.RestartAgent], [Node.Reboot], [Node.CutNetwork] and [Node.FillDisk] act on the whole
// node; a Loop has the same methods, and [Loop.JumpClock]. Faults of single API requests are those of package apiservertest.
//
// # Limits of the model
//
// Those of packages machine, critest and apiservertest. Probes of all kinds are answered by the behavior of the container. Volumes have a size
// only. HTTP hooks are exec hooks. Host aliases and, in a Node, resource claims are ignored. The runtime pulls images of no size, and image garbage
// collection does not run. Starts and pulls do not wait for each other unless parallelStarts or maxParallelImagePulls is set.
// make node-model compares a Node with an agent on a real kernel. Section "Agreement with Linux" of package machine has the figures.
//
// # Concurrency and errors
//
// Methods of a Node may be called from any goroutine, unless their documentation restricts it; those of a Loop from one at a time. Fleet.Run owns
// all goroutines of a Fleet, whose number does not depend on the number of nodes. Errors name the pod,
// the field or the option. Test kit: the package is one.
package nodetest
