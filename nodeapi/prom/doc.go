// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package prom provides the kubelet's Prometheus metrics for the packages of this module, with the kubelet's names, types, labels
// and buckets, and serves them as pages. It measures nothing itself: it counts the calls of hooks. The resource usage of
// containers is in package usage.
//
//	registry := prometheus.NewRegistry()
//	metrics, err := prom.New(registry, prom.Options{Pods: func() []lifecycle.PodState { return pods.Pods() }})
//	generator := pleg.New(runtime, pleg.Options{Hooks: metrics.PLEG()})
//	pods, err := lifecycle.New(runtime, generator, lifecycle.Options{Hooks: metrics.Lifecycle(mine)})
//	http.Handle("/metrics", prom.Page(registry, prom.PageOptions{}))
//
// # Model
//
// The packages of this module have hooks instead of metrics. [New] creates all metrics in a registry of the caller. A method per
// package returns hooks that update the metrics of that package and also call the hooks of the caller. The metrics of a package
// appear on the page once its method was called.
//
// Packages that use gRPC or client-go are not imported. For these, a method returns functions: [Metrics.Runtime], [Metrics.CSI],
// [Metrics.StatusSent], [Metrics.Node], [Metrics.Shutdown], [Metrics.ServingCertificate], [Metrics.Server], [Metrics.PodsAPI],
// [Metrics.CPUs], [Metrics.Memory].
//
// Metrics that the kubelet does not have are named nodeagent_*. Labels have a bounded number of values, or their series are
// removed with their pod. [Options.Without] and [Options.WithoutLabels] drop metrics and labels.
//
// # Concurrency
//
// Hooks may be called from any goroutine. Only [Page] starts a goroutine, for the duration of a request.
//
// # Errors
//
// A collector that fails, or a duplicate series, costs only that series of a page. PageOptions.Error receives the error.
//
// # Differs from the kubelet
//
// - Each container that terminates is counted once, also one that is restarted before a status shows its termination.
// - Nothing is registered globally.
// - A state without containers has no series in kubelet_running_containers; the kubelet keeps the last value.
// - Histograms have no native buckets.
// - Metrics of missing features, such as dynamic resource allocation, are absent.
//
// DIFFERENCES.md has all differences, and testdata/verdicts.txt compares each metric of the kubelet's page with ours. Test kit:
// package promtest.
package prom
