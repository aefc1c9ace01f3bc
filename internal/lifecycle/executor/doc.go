// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package executor does what package plan has decided for a pod: it stops, removes, resizes, creates and starts containers
// through a cri.Runtime, with their cgroup, images, files, hooks and logs, and tells what it does by events. When to act, and
// what to do next, is not its to decide.
//
// # Model
//
// One [Executor] is one pod's, and a [Node] what all of them share. Do executes the Actions in the order of their fields;
// a failure ends what builds on it and nothing else, and shows as the waiting reason of the container that did not start.
//
//	reporter := executor.NewReporter(node.Prepare(), id)
//	x := executor.New(reporter, record) // for as long as the pod is there
//	...
//	actions, status := plan.Decide(state)
//	x.Begin(status.PodIPs)
//	err := x.Do(ctx, pod, observed, &actions) // or, where there is nothing to do, x.Rest
//
// Each part of the work has a type, and a file of its name:
//
//	executor.go                  the order of all parts
//	stop.go, prestop.go          the end of containers, in order, with their preStop hooks; the end of sandboxes
//	remove.go, cleanup.go        what is removed from the runtime; what is released and removed on the node
//	network.go, volumes.go       what has to be ready before a start
//	slot.go                      the start slot, which a pull lends to other pods
//	sandbox.go                   the sandbox, and before it the cgroup
//	start.go, create.go          containers: their start and, before it, their creation with image, volumes and files
//	pull.go                      images of containers and of image volumes
//	hooks.go, poststart.go       the container that a hook runs for; postStart hooks
//	quota.go                     the CPU quota of the pod, which is lifted for a start
//	resizer.go, resize_*.go      the resources of running containers: decision, call, events, state
//	reporter.go, reporter_work.go, event.go, subject.go, waiting.go   the log, events, errors, hooks, and waiting reasons
//	logs.go, addresses.go        logs and their links; the addresses of the pod
//
// What belongs here: each call to the runtime and everything around it. A third runtime needs nothing here: it is a
// cri.Runtime. What does not: rules, statuses, sources, and the loop of a pod.
//
// # Concurrency
//
// An Executor does one thing at a time: calls of its methods and of those of its parts must not overlap, but for Quota.Lifted,
// Quota.EnforceNow, Waiting and Resizer, which are for the worker that waits for Do.
//
// # Errors
//
// An error of a start is a [*podstatus.StartError] with the reason that the status shows. What is cut short, because its context ends,
// is told to nobody.
//
// # Test kit
//
// The runtime is a critest.SummaryRuntime behind a critest.Interceptor, in a testing/synctest bubble. scene_test.go makes a pod, its
// node and its executor of that, and the other tests say what is called, and when.
package executor
