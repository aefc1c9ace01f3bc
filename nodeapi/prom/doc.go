// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package prom turns what the hooks of engines tell into metrics of Prometheus, with the names, types, labels and buckets that
// the kubelet's have, and serves pages of them. It measures nothing itself: that the usage of containers has a page is up to
// package usage below it.
//
// # Model
//
// The engines of this module know no metrics; they have hooks. [New] makes the metrics of all of them in a registry of the
// caller's, and a method for each engine returns hooks that feed them, and that call hooks which somebody has already:
//
//	registry := prometheus.NewRegistry()
//	metrics, err := prom.New(registry, prom.Options{Pods: func() []lifecycle.PodState { return pods.Pods() }})
//	generator := pleg.New(runtime, pleg.Options{Hooks: metrics.PLEG()})
//	pods, err := lifecycle.New(runtime, generator, lifecycle.Options{Hooks: metrics.Lifecycle(mine)})
//	http.Handle("/metrics", prom.Page(registry, prom.PageOptions{}))
//
// What is on the page is what was wired: the metrics of an engine are there from when its hooks are asked for. Packages that
// bring gRPC or client-go are not imported, and take functions: [Metrics.Runtime], [Metrics.CSI], [Metrics.StatusSent],
// [Metrics.Node], [Metrics.Shutdown], [Metrics.ServingCertificate], [Metrics.Server], [Metrics.PodsAPI].
//
// Names that the kubelet does not have begin with nodeagent_. Labels have a bounded number of values, or go with the pod that
// they name. [Options.Without] and [Options.WithoutLabels] leave out what a site does not want, where it is made.
//
// # Concurrency
//
// Hooks may be called from any goroutine. Nothing here starts one, but for a [Page] while it is asked for.
//
// # Errors
//
// A collector that fails, or a series that is there twice, costs that series and not the page; [PageOptions] has who is told.
//
// # When not to use it
//
// With another registry than client_golang's: the hooks are all that this package has, too.
//
// # Differs from the kubelet
//
//   - Each container that terminates is counted once, also one that was restarted before a status could say so.
//   - Nothing is registered globally, and what is not wired is not on the page.
//   - A state that no container is in has no series in kubelet_running_containers; the kubelet's keeps its last value.
//   - Histograms have no native buckets.
//   - Metrics of what this module does not have, such as topology, are absent.
//
// DIFFERENCES.md has them all, and testdata/verdicts.txt says of each family of the kubelet's page whether ours is the same.
//
// Test kit: package promtest.
package prom
