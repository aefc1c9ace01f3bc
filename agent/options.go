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

// Options replaces and extends the parts of an [Agent]. The zero value is a node of this machine with the parts that Config selects.
type Options struct {
	// Logger is the logger of all engines. Nil: log/slog text on standard error, at LogLevel.
	Logger *slog.Logger
	// LogLevel is set by clients of the node's API (/debug/flags/v). Nil with a Logger: clients cannot set it.
	LogLevel *slog.LevelVar
	// Registerer registers the metrics of all engines. Several agents in a process need prometheus.WrapRegistererWith with a label other than node.
	// Nil: they are on the pages of the node's API only, and without enableServer there are no metrics.
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

	// Sources are additional pod sources. Their names must not be "file", "http" or "api", the sources of the configuration. The field Source of a
	// pod set is the name of its source. Empty: no additional sources.
	Sources []source.Source
	// Transform returns the pod to run for a pod of a source. It must not modify its argument. Nil: pods are not transformed.
	Transform func(pod *corev1.Pod) *corev1.Pod
	// Objects returns the config maps, secrets and services of a node without a cluster. Nil: those in objectsDir.
	Objects lifecycle.Objects

	// Admit decides whether a pod may run, before the checks of the node. Nil: every pod may.
	Admit lifecycle.Admit
	// Ranker orders the pods of the node for eviction. Nil: the kubelet's order.
	Ranker func(eviction.Layout) eviction.EvictionRanker
	// Measurer measures node and pods for evictions if cgroupsPerQOS is false. Nil: without cgroups no pod is evicted.
	Measurer podevict.Measurer
	// Probes runs probes. Nil: HTTP, TCP, gRPC and exec probes, as in the kubelet.
	Probes lifecycle.Probes
	// Plugins are volume plugins by their names in package volume. They replace built-in plugins of equal names. Nil: the node has
	// the plugins of package volume/intree, and CSI.
	Plugins map[string]volume.Plugin

	// Ephemeral stores no pods, probe results, image records and container logs on disk. It needs a Runtime that reads no files of the
	// agent, such as one in memory. rootDir is not used, and enableServer is false by default. False: files are in rootDir and podLogsDir.
	Ephemeral bool
	// OwnProcess lets New set the memory limit of the Go runtime to 80 % of the cgroup's and turn off heap profiles that no handler serves, and Run
	// return unused memory to the system. False: the agent changes no settings of the process.
	OwnProcess bool
	// Hooks are additional hooks of the engines.
	Hooks Hooks
}

// Hooks has the hooks of each engine, which are called in addition to the agent's own. Event is called for each pod event, with its annotations.
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
