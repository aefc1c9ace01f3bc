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

// Options replaces parts of an [Agent] and adds parts to it. The zero value is a node of this machine with the parts that Config selects.
type Options struct {
	// Logger is the logger of all engines. Nil: log/slog text on standard error, at LogLevel.
	Logger *slog.Logger
	// LogLevel is the log level, which clients of the node's API may set (/debug/flags/v). Nil with a Logger: clients cannot set it.
	LogLevel *slog.LevelVar
	// Registerer receives the metrics of all engines. Several agents in one process need prometheus.WrapRegistererWith, with a label other than
	// node. Nil: the metrics are only on the pages of the node's API. If enableServer is also false, there are no metrics.
	Registerer prometheus.Registerer

	// Runtime runs containers. It may implement optional interfaces of package cri. Run closes it if it is an
	// io.Closer. Nil: the runtime at containerRuntimeEndpoint is used, or package cri/process without that field.
	Runtime cri.Runtime
	// Cgroups are the cgroups of the pods of Runtime, which a simulated machine enforces. Nil: pods of Runtime have no cgroups.
	Cgroups Cgroups
	// Volumes prepares the volumes of the pods of Runtime. Nil: pods of Runtime have no volumes.
	Volumes lifecycle.PodResources
	// Machine reads the capacity of the machine. Nil: the capacity of this machine.
	Machine nodestatus.Capacity
	// API configures the clients of the API server. Package apiservertest has an API server in memory. Nil: kubeconfig configures them.
	API *rest.Config
	// Hosts returns the IP addresses for the Node object. Nil: the addresses of this machine.
	Hosts heartbeat.Hosts

	// Sources are additional pod sources. Their names must not be "file", "http" or "api", the names of the sources in the configuration. The
	// field Source of a pod set must be the name of its source. Empty: no additional sources.
	Sources []source.Source
	// Transform returns the pod that is run in place of pod. It must not modify pod. Nil: the pods of the sources are run.
	Transform func(pod *corev1.Pod) *corev1.Pod
	// Objects returns the config maps, secrets and services of a node without a cluster. Nil: those in objectsDir.
	Objects lifecycle.Objects

	// Admit decides whether a pod may run. It is called before the admission checks of the agent. Nil: no additional check.
	Admit lifecycle.Admit
	// Ranker sorts the pods of the node: the first pod is evicted first. Nil: the order of the kubelet.
	Ranker func(eviction.Layout) eviction.EvictionRanker
	// Measurer measures node and pods for evictions, in place of the cgroups. Nil: if cgroupsPerQOS is false, no pod is evicted.
	Measurer podevict.Measurer
	// Probes runs probes. Nil: HTTP, TCP, gRPC and exec probes, as in the kubelet.
	Probes lifecycle.Probes
	// Plugins are additional volume plugins, by the plugin names of package volume. A plugin replaces the built-in plugin of its name. The
	// built-in plugins are those of package volume/intree, and CSI. Nil: no additional plugins.
	Plugins map[string]volume.Plugin

	// Ephemeral means that the agent stores nothing on disk: no pods, probe results, image records and container logs. Runtime must then be a
	// runtime that reads no files of the agent. rootDir is not used, enableServer defaults to false, and healthzPort to 0. False: files are in rootDir and podLogsDir.
	Ephemeral bool
	// OwnProcess permits memory limits of the Go runtime, no heap profiles if no handler serves them, oomScoreAdj, maxOpenFiles and kubeletCgroups with containerRuntimeEndpoint,
	// and kernel parameters with hostSettings; Run returns unused memory to the system. False: the agent changes no settings of the process or machine.
	OwnProcess bool
	// Rand returns a number in [0,1) for the jitter of all engines. Nil: math/rand/v2.
	Rand func() float64
	// Hooks are additional hooks of the engines.
	Hooks Hooks
}

// Cgroups is a driver of cgroups, such as that of a simulated machine (package nodetest) or *driver.Driver of package cgroups/driver.
type Cgroups interface {
	podtree.Cgroups
	podevict.Cgroups
	podevict.Machine
}

// Hooks has additional hooks for each engine: the agent has its own hooks, too. Event is called for each pod event, with its annotations.
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
