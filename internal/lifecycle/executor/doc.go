// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package executor executes the decisions of package plan for one pod: it stops, removes, resizes, creates and starts containers
// and sandboxes through a cri.Runtime. It does not decide when to sync a pod or which actions a sync needs.
//
// # Model
//
// An [Executor] belongs to one pod; all pods share a [Node]. [Executor.Execute] runs the Actions in the order of their fields. If
// an action fails, the actions that depend on it are skipped, and the error becomes the waiting reason of each container that did
// not start.
//
//	reporter := executor.NewReporter(node.DetectFeatures(), id)
//	x := executor.New(reporter, record) // one per pod, until the pod is removed
//	...
//	actions, status := plan.Decide(state)
//	x.StartSync(status.PodIPs)
//	err := x.Execute(ctx, pod, observed, &actions) // or x.ExecuteIdle, if there is no action
//
// Each part of the work is a type in the file of its name:
//
//	executor.go                  the order of all parts
//	stop.go, prestop.go          stops containers in order, runs preStop hooks, stops sandboxes
//	remove.go, cleanup.go        removes objects of the runtime; releases and removes node resources
//	devices.go, network.go, volumes.go   prerequisites of a start
//	slot.go                      the start slot, which is released during an image pull
//	sandbox.go                   the pod cgroup and the sandbox
//	start.go, create.go          creates and starts containers
//	pull.go                      images of containers and of image volumes
//	hooks.go, poststart.go       lifecycle hooks
//	quota.go                     the CPU quota of the pod, which is lifted during a start
//	resizer.go, resize_*.go      in-place resize of the pod
//	reporter.go, reporter_work.go, subject.go, waiting.go   log, events, hooks and waiting reasons
//	logs.go, addresses.go        log files and their links; pod addresses
//
// Every call to the runtime that changes a pod is made here. Restart rules, statuses, sources and the worker loop are in other
// packages.
//
// # Concurrency
//
// Calls of an Executor and of its parts must not overlap. The exceptions are Quota.RunsUnlimited, Quota.EnforceNow,
// WaitingReasons and Resizer, which the worker calls while Execute runs.
//
// # Errors
//
// A failed start returns a [*podstatus.StartError] with the waiting reason for the status. A pod whose devices are refused returns
// a [*RejectedError]. If ctx ends, no event is recorded.
//
// # Test kit
//
// The tests run a critest.SummaryRuntime behind a critest.Interceptor in a testing/synctest bubble. scene_test.go builds the pod, node
// and executor.
package executor
