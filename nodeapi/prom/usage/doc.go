// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package usage serves what the node, its pods and their containers use, as the kubelet's pages /metrics/resource and
// /metrics/cadvisor do, and collects what volumes and logs take for /metrics. It measures cgroups, networks
// and file systems by package stats, and looks itself into /proc for open files, mounts and disks.
//
// # Model
//
// A page is an http.Handler that measures when it is asked, and writes the text format of Prometheus itself: no registry keeps a
// series, so that those of a pod go with it, and a page of 100 pods costs little.
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
// Names, types, labels, units and time stamps are the kubelet's. What it has and we do not, with the reason, is in
// testdata/cadvisor.txt and testdata/resource.txt, which a test compares with pages of a real kubelet.
//
// What is not wanted is left out at the source, by [Options].Without: the files of the kernel that only it needs are not read.
//
// What belongs here: the form of these pages. What does not: cgroups and how they are read, and metrics of the agent itself.
//
// # Concurrency
//
// All may be used from any goroutine. A page is made for one client at a time; others wait, until their request ends.
//
// # Errors
//
// Constructors name what is invalid. A source that fails costs its own series: the page has the others, resource_scrape_error or
// container_scrape_error is 1, and [Options].Error is told.
//
// # Differs from the kubelet
//
// The models are pkg/kubelet/metrics/collectors of Kubernetes 1.37 and lib/metrics of cAdvisor 0.60. A user has to know:
//
//   - Values are of the moment of the scrape; those of cAdvisor are up to 15 seconds old.
//   - A source that fails leaves the others on the page; the kubelet's /metrics/resource is then empty.
//   - /metrics/cadvisor has the node, its pods, their classes and containers; cAdvisor has every cgroup of the machine.
//   - container_fs_* has the file systems of the machine without those of pods and containers, of which cAdvisor has what was there
//     when the kubelet started, and its times are seconds, which cAdvisor divides by a million.
//
// All others are in DIFFERENCES.md.
//
// Test kit: the tests of a consumer use a [Source] of their own, or a stats.Collector of package cgroupstest's tree.
package usage
