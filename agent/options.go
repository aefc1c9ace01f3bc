// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/volume"
)

// Options are the parts that a program brings. The zero value is a node of this machine with the parts that Config asks for.
type Options struct {
	// Logger gets what the engines log. Nil: log/slog text on standard error, at LogLevel.
	Logger *slog.Logger
	// LogLevel is the level that clients of the node's API may set (/debug/flags/v). Nil with a Logger: they may not.
	LogLevel *slog.LevelVar
	// Registerer gets the metrics of all engines; several agents of one process need prometheus.WrapRegistererWith and a label other than node.
	// Nil: they are on the pages of the node's API alone, and without enableServer no metric is kept.
	Registerer prometheus.Registerer

	// Runtime runs containers, without volumes and cgroups. Optional interfaces of package cri are used, and Run closes it if it is an io.Closer.
	// Nil: the runtime of containerRuntimeEndpoint or, without that, package cri/process.
	Runtime cri.Runtime
	// Machine reads the capacity of the machine. Nil: the capacity of this machine.
	Machine nodestatus.Capacity
	// API is the API server, in place of kubeconfig; package apiservertest has one in memory. Nil: that of kubeconfig.
	API *rest.Config
	// Hosts finds the addresses of the Node object. Nil: the addresses of this machine.
	Hosts heartbeat.Hosts

	// Sources list pods, beside staticPodPath, staticPodURL and the API server, whose names "file", "http" and "api" they must not have. The Source
	// of a set is the name of its source. Empty: there are no other sources.
	Sources []source.Source
	// Transform returns the pod to run for a pod of a source. It must not change its argument. Nil: pods run as they are.
	Transform func(pod *corev1.Pod) *corev1.Pod
	// Objects are the config maps, secrets and services of a node without a cluster. Nil: those of objectsDir.
	Objects lifecycle.Objects

	// Admit decides whether a pod may run, before the checks of the node. Nil: every pod may.
	Admit lifecycle.Admit
	// Ranker orders the pods of the node for eviction. Nil: the kubelet's order.
	Ranker func(eviction.Layout) eviction.EvictionRanker
	// Measurer measures the node and its pods for evictions, where Config has no cgroups. Nil: without cgroups no pod is evicted.
	Measurer podevict.Measurer
	// Probes runs probes. Nil: HTTP, TCP, gRPC and exec probes, as in the kubelet.
	Probes lifecycle.Probes
	// Plugins are volume plugins, by the names of package volume. They replace those of the same name. Nil: the node has
	// the plugins of package volume/intree, and CSI.
	Plugins map[string]volume.Plugin

	// Ephemeral keeps no pods, results of probes, records of images and logs of containers on disk. It needs a Runtime that reads no files of the
	// agent, such as one in memory. rootDir is not used, and enableServer is false by default. False: they are in rootDir and podLogsDir.
	Ephemeral bool
	// OwnProcess lets New set the memory limit of the Go runtime to 80 % of the cgroup's and turn off heap profiles that no handler serves, and Run
	// return unused memory to the system. False: the process is left alone.
	OwnProcess bool
	// Hooks are called when the engines do something.
	Hooks Hooks
}

// Hooks has the hooks of each engine. Each is called beside the agent's own. Event gets each event of a pod, with the annotations of the
// event.
type Hooks struct {
	Event       func(pod cri.PodIdentity, event podevents.Event, annotations map[string]string)
	Lifecycle   lifecycle.Hooks
	PLEG        pleg.Hooks
	Probes      probe.Hooks
	Images      images.Hooks
	ImageGC     gc.ImageHooks
	ContainerGC gc.ContainerHooks
	Volumes     volume.Hooks
	Eviction    eviction.Hooks
	Cgroups     podtree.Hooks
	Node        heartbeat.ReporterHooks
}
