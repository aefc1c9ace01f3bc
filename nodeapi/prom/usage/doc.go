// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package usage serves the resource usage of the node, its pods and containers as the kubelet's pages /metrics/resource and
// /metrics/cadvisor, and collects the usage of volumes and logs for /metrics. Package stats measures cgroups, networks and file
// systems for it; open files, mounts and disks are read from /proc.
//
//	resource, err := usage.Resource(collector, usage.Options{})
//	cadvisor, err := usage.Cadvisor(collector, usage.Options{Machine: info})
//	http.Handle("/metrics/resource", resource)
//	http.Handle("/metrics/cadvisor", cadvisor)
//	registry.MustRegister(usage.Storage(func() (*stats.Summary, error) {
//		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
//		defer cancel()
//		return collector.Summary(ctx)
//	}, usage.Options{}))
//
// # Model
//
// A page is an http.Handler that measures for each request and writes the text format of Prometheus itself. No registry keeps
// series, so the series of a pod disappear with the pod, and a page of 100 pods costs little.
//
// Names, types, labels, units and timestamps are those of the kubelet. testdata/cadvisor.txt and testdata/resource.txt list the
// kubelet's metrics that are missing here, with the reason; a test compares them with pages of a kubelet. For metrics excluded by
// [Options].Without, the kernel's files are not read.
//
// # Concurrency
//
// All functions may be called from any goroutine. A page serves one client at a time; further requests wait.
//
// # Errors
//
// Constructors return an error that names the invalid option. If a measurement fails, its series are missing,
// resource_scrape_error or container_scrape_error is 1, and [Options].Error is called.
//
// # Differs from the kubelet
//
// The models are pkg/kubelet/metrics/collectors of Kubernetes 1.37 and lib/metrics of cAdvisor 0.60. DIFFERENCES.md has all
// differences. The most important ones:
//
// - Values are measured at the scrape; those of cAdvisor are up to 15 seconds old.
// - A failed measurement costs only its own series; the kubelet's /metrics/resource is then empty.
// - /metrics/cadvisor has the node, its pods, their QoS classes and containers; cAdvisor has every cgroup of the machine.
// - container_fs_* has the file systems of the machine without those of pods and containers. Its times are in seconds; cAdvisor divides them by a million.
//
// Test kit: tests use a [Source] of their own, or a stats.Collector on the tree of package cgroupstest.
package usage
