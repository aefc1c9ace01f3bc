// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package promtest compares pages of metrics with those of a kubelet: names, types, labels and buckets. It does not compare
// values, which are of a moment.
//
// # Model
//
// The shape of a page is a list of families, one a line:
//
//	kubelet_pleg_relist_duration_seconds histogram {} 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10
//	kubelet_running_containers gauge {container_state}
//
// [Parse] reads it from a page in the text format of Prometheus, and [Kubelet] returns that of a page of kubelet 1.37.1, which
// `make metrics` scrapes. A list of verdicts says of each of its families that ours is the same, or why we have none or another one:
//
//	same   kubelet_running_containers
//	absent kubelet_topology_manager_admission_errors_total: there is no topology manager
//	varies go_*: of the Go runtime
//
// [Compare] checks that the list is complete, and that it is true:
//
//	for _, problem := range promtest.Compare(kubelet, ours, verdicts) {
//		t.Error(problem)
//	}
//
// # Concurrency
//
// Functions have no state.
//
// # Errors
//
// They name the line or the family.
//
// # When not to use it
//
// For pages that are not meant to be a kubelet's: testutil and promlint of client_golang check those.
package promtest
