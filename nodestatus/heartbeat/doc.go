// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package heartbeat registers the Node object of an agent, reports its status to the API server, and renews its Lease in namespace
// kube-node-lease. It does not manage pods, and it does not measure the machine: the sources in [ReporterOptions] do.
//
//	reporter, err := heartbeat.NewReporter(config, heartbeat.ReporterOptions{
//		Config:   nodestatus.Config{Name: "node-1"},
//		Capacity: machine.Host{},
//		Hosts:    nodestatus.Lookup{},
//		Runtime:  runtime, // a cri.StatusReporter
//	})
//	if err != nil {
//		return err
//	}
//	lease, err := heartbeat.NewLease(config, heartbeat.LeaseOptions{Reporter: reporter})
//	if err != nil {
//		return err
//	}
//	go lease.Run(ctx)
//	return reporter.Run(ctx) // returns nil when ctx ends
//
// A [Reporter] creates the Node, or adopts an existing one. Every 10 s it computes the node status and compares it with the status at the
// API server. It sends a changed status at once, and an unchanged one every 5 minutes. [Reporter.Changed] requests an earlier update, for
// example when a condition changes. A watch follows changes of the Node by other clients. [Reporter.Node] returns the current Node; it works
// before the registration and while the API server is unavailable.
//
// A [Lease] is renewed every 10 s over a separate connection.
//
// Package nodestatus builds the Node object and the patch; this package decides when to send it.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run owns all goroutines that it starts, and waits for them when ctx ends; sources must
// return when their context ends. Each source is read on a goroutine of its own. Hooks, events and functions passed to [Reporter.Notify] are
// called from the goroutine of Run with no lock held. API requests run on another goroutine, one at a time.
//
// # Errors
//
// Run does not return errors of the API server; it retries. A registration is retried after 100 ms to 7 s. A status report or lease
// renewal has at most five attempts of 10 s each, and is then repeated at its next period. Errors are logged and passed to Hooks.Error.
// After the Node was deleted, reports and renewals stop until another client creates it; see ReporterOptions.Reregister. With
// ReporterOptions.NoRegister they also start then.
//
// # Differs from the kubelet
//
// The model is kubelet_node_status.go and util/nodelease.go of pkg/kubelet, and the lease controller of component-helpers, of Kubernetes
// 1.37. DIFFERENCES.md has all differences. Main ones:
//
//   - A changed condition is reported within a second of [Reporter.Changed]; the kubelet waits for its next update.
//   - Reports and renewals stop while the Node is deleted.
//   - A second agent with the same node name is detected, and reported by event [ReasonNameConflict].
//
// Test kit: package apiservertest has an API server in memory.
package heartbeat
