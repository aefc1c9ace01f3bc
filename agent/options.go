// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
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
	// Registerer gets the metrics of all engines; several agents of one process need prometheus.WrapRegistererWith and a label other than node. Nil: they are on the pages of
	// the node's API alone.
	Registerer prometheus.Registerer

	// Runtime runs containers, without volumes and cgroups. Optional interfaces of package cri are used, and Run closes it if it is an io.Closer.
	// Nil: the runtime of containerRuntimeEndpoint or, without that, package cri/process.
	Runtime cri.Runtime
	// Machine reads the capacity of the machine. Nil: that of this one.
	Machine nodestatus.Capacity
	// Hosts finds the addresses of the Node object. Nil: those of this machine.
	Hosts heartbeat.Hosts

	// Sources list pods, beside those of staticPodPath, staticPodURL and the API server. Empty: those are all.
	Sources []PodSource
	// Transform returns the pod to run for a pod of a source. It must not change its argument. Nil: pods run as they are.
	Transform func(pod *corev1.Pod) *corev1.Pod
	// Objects are the config maps, secrets and services of a node without a cluster. Nil: those of objectsDir.
	Objects podenv.Objects

	// Admit is asked whether a pod may run, before the checks of the node. Nil: all may.
	Admit lifecycle.Admit
	// Ranker orders the pods of the node for eviction. Nil: the kubelet's order.
	Ranker func(eviction.Layout) eviction.EvictionRanker
	// Measurer measures the node and its pods for evictions, where Config has no cgroups. Nil: without cgroups no pod is evicted.
	Measurer podevict.Measurer
	// Probes runs probes. Nil: HTTP, TCP, gRPC and exec probes as the kubelet's.
	Probes lifecycle.Probes
	// Plugins are volume plugins, by the names of package volume. They replace those of the same name. Nil: the node has
	// the plugins of package volume/intree, and CSI.
	Plugins map[string]volume.Plugin

	// Ephemeral keeps no pods, results of probes, records of images and logs of containers on disk. It needs a Runtime that reads no files of the
	// agent, such as one in memory. False: they are in rootDir and podLogsDir.
	Ephemeral bool
	// OwnProcess lets New set the memory limit of the Go runtime to 80 % of the cgroup's and turn off heap profiles that no handler serves, and Run
	// return unused memory to the system. False: the process is left alone.
	OwnProcess bool
	// Hooks are told what the engines do.
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

// PodSource lists the pods of a source.
type PodSource interface {
	// Name returns the name of the source, which no other source of the agent has. The names "file", "http" and "api" are those of
	// staticPodPath, staticPodURL and the API server.
	Name() string
	// Run calls set with all pods of the source, at first and after each change, until ctx ends. Set keeps the pods: they must not be changed
	// after the call, and their Source is Name. Run must not return an error while ctx goes on, unless the agent is to end.
	Run(ctx context.Context, set func(lifecycle.PodSet)) error
}

// Pods returns a source whose pods are built in code. Each value that the channel receives replaces all pods before. A closed channel leaves
// the pods as they are. Fields that are not set get the defaults of an API server, the namespace is default, and a pod without a UID gets one
// that depends on its content, so that a changed pod replaces the one before.
func Pods(name string, pods <-chan []*corev1.Pod) PodSource {
	return &channelSource{name: name, pods: pods}
}

type channelSource struct {
	name string
	pods <-chan []*corev1.Pod
}

func (s *channelSource) Name() string { return s.name }

func (s *channelSource) Run(ctx context.Context, set func(lifecycle.PodSet)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case pods, open := <-s.pods:
			if !open {
				<-ctx.Done()
				return nil
			}
			complete := make([]*corev1.Pod, len(pods))
			for i, pod := range pods {
				complete[i] = completePod(pod)
			}
			set(lifecycle.PodSet{Source: s.name, Pods: complete})
		}
	}
}

// completePod returns a copy of a pod with its defaults and a UID.
func completePod(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace = cmp.Or(pod.Namespace, metav1.NamespaceDefault)
	podapi.Default(pod)
	if pod.UID == "" {
		text, _ := json.Marshal(pod) // every pod has a JSON form
		sum := sha256.Sum256(text)
		pod.UID = types.UID(hex.EncodeToString(sum[:16]))
	}
	return pod
}
