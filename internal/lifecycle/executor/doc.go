// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package executor does what package plan has decided for a pod: it stops, removes, resizes, creates and starts containers
// through a cri.Runtime, with their cgroup, images, files, hooks and logs, and tells what it does by events. When to act, and
// what to do next, is not its to decide.
//
// # Model
//
// One [Executor] is one pod's, and a [Node] what all of them share. Do carries out the Actions in the order of their fields;
// a failure ends what builds on it and nothing else, and shows as the waiting reason of the container that did not start. A
// [Resizer] changes the resources of containers that run. A [Reporter] is how a pod is told about: the log, the events, the
// errors.
//
//	x := executor.New(executor.NewReporter(node.Prepare(), id), record) // for as long as the pod is there
//	...
//	actions, status := plan.Decide(state)
//	x.Begin(status.PodIPs)
//	err := x.Do(ctx, pod, observed, &actions) // or, where there is nothing to do, x.Rest
//
// What belongs here: each call to the runtime and everything around it. A third runtime needs nothing here: it is a
// cri.Runtime. What does not: rules, statuses, sources, and the loop of a pod.
//
// # Concurrency
//
// An Executor does one thing at a time: calls of its methods must not overlap, but for QuotaLifted, LimitNow and Waiting,
// which are for whoever waits for Do.
//
// # Errors
//
// An error of a start is a [*StartError] with the reason that the status shows. What is cut short, because its context ends,
// is told to nobody.
//
// # Test kit
//
// The runtime is a critest.Summary behind a critest.Interceptor, in a testing/synctest bubble. scene_test.go makes a pod, its
// node and its executor of that, and the other tests say what is called, and when.
package executor
