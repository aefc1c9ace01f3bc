// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package heartbeat registers the Node object of an agent, reports its status to the API server, and renews the
// lease of the node. It decides nothing about pods, and does not read the machine itself: its sources do.
//
// # Model
//
// A [Reporter] makes the Node, or takes over the one that is there, and looks at it every ten seconds, or at once when
// [Reporter.Changed] says that a condition has changed. What has changed is sent, and what has not every five minutes. What the
// Node is made of comes from sources, each of which is read on its own, so that one that hangs delays nothing else; package
// nodestatus turns it into the object. A watch follows what others write to the Node. A [Lease] is renewed every ten seconds, on a
// connection of its own.
//
//	reporter, err := heartbeat.NewReporter(config, heartbeat.ReporterOptions{
//		Config:   nodestatus.Config{Name: name},
//		Capacity: nodestatus.Root{FS: os.DirFS("/")},
//		Hosts:    nodestatus.Lookup{},
//		Runtime:  runtime,
//	})
//	lease, err := heartbeat.NewLease(config, heartbeat.LeaseOptions{Reporter: reporter})
//	// and then, each on a goroutine:
//	err = reporter.Run(ctx)
//	err = lease.Run(ctx)
//
// [Reporter.Node] has the node also before the API server knows it, and while that is away.
//
// What belongs here: when to send what, and what to do about errors. What does not: what a Node object says (package nodestatus),
// certificates (package cert), and pods (package apiserver).
//
// # Concurrency
//
// Run owns all goroutines and returns when they have ended; sources have to return when their context ends. Hooks, events and what
// [Reporter.Notify] was given are called from Run's goroutine, with no lock held. Requests run beside it, one at a time: one that
// hangs delays neither Node nor who is told of it. Methods may be called from any goroutine.
//
// # Errors
//
// No error of the API server ends Run. Registering is repeated after 100 ms to 7 s; a status and a lease have five tries of at most 10 s
// each, the second one on a new connection where the first had no answer, and then wait for their next turn. Requests that fail are
// reported to Hooks.Error and logged, once for each round. A Node that somebody deletes makes status and lease rest, which one line
// tells.
//
// # Differs from the kubelet
//
// The model is kubelet_node_status.go and util/nodelease.go of pkg/kubelet, and component-helpers' lease controller, of Kubernetes
// 1.37. A user has to know:
//
//   - A condition is sent within a second when somebody calls [Reporter.Changed]; the kubelet waits for the next ten seconds.
//   - When the Node is deleted, status and lease stop. With ReporterOptions.Reregister the node is registered again, after a back-off.
//   - Another agent of the same name is reported, by an event and a line a minute.
//   - Lease and status have connections of their own, which share no fate with watches; the kubelet's are those of all its requests.
//   - Sources are read in the background. Call [Reporter.Changed] for what must not wait until they are read the next time.
//
// All others are in DIFFERENCES.md.
//
// # When not to use it
//
// For a node without an API server: nodestatus.Initial makes the Node object alone.
//
// Test kit: package apiservertest has an API server in memory.
package heartbeat
