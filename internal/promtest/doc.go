// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package promtest compares pages of metrics with those of a kubelet: names, types, labels and buckets, but not values.
//
//	for _, problem := range promtest.Compare(kubelet, ours, verdicts) {
//		t.Error(problem)
//	}
//
// # Model
//
// The shape of a page is a list of metrics (families), one a line:
//
//	kubelet_pleg_relist_duration_seconds histogram {} 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10
//	kubelet_running_containers gauge {container_state}
//
// [Parse] reads it from a page in the text format of Prometheus. [Kubelet] returns the shape of a page of kubelet 1.37.1, which
// `make metrics` scrapes. A list of verdicts says for each metric of the kubelet that ours is equal, absent or different, with
// the reason:
//
//	same   kubelet_running_containers
//	absent kubelet_topology_manager_admission_errors_total: there is no topology manager
//	varies go_*: of the Go runtime
//
// [Compare] checks that the verdicts are complete and true. Functions have no state. Errors name the line or the metric.
package promtest
