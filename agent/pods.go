// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/internal/takeover"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/grpcprobe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
	"github.com/seed81659283/nodeagent/qos"
)

// createFeed returns the feed, which passes pods to the reconciler: first the stored pods, then the pods of each source.
func (a *Agent) createFeed() *source.Feed {
	f := &source.Feed{Set: a.setPods, Transform: a.options.Transform, Logger: a.log}
	var lost error
	if a.store != nil {
		if f.Stored, lost = a.store.Load(); lost != nil {
			a.log.Error("the pods of the store are lost; running pods are left running", "error", lost)
		}
		f.Update = a.store.Update
	}
	k, n := &a.config.Kubelet, &a.config.Node
	hasObjects, hasTokens := n.ObjectsDir != "" || a.options.Objects != nil, n.Kubeconfig != ""
	if k.StaticPodPath != "" {
		o := source.DirOptions{Period: k.FileCheckFrequency.Duration, NodeName: n.NodeName, AllowObjects: hasObjects, AllowTokens: hasTokens, Logger: a.log}
		o.MissingIsEmpty = lost == nil && !source.HasPods(f.Stored, source.File)
		f.Sources = append(f.Sources, source.Manifests(source.File, source.NewDir(k.StaticPodPath, o).Run, a.log))
	}
	if k.StaticPodURL != "" {
		o := source.HTTPOptions{Period: k.HTTPCheckFrequency.Duration, NodeName: n.NodeName, AllowObjects: hasObjects, AllowTokens: hasTokens}
		f.Sources = append(f.Sources, source.Manifests(source.URL, source.NewHTTP(k.StaticPodURL, o).Run, a.log))
	}
	if a.cluster != nil {
		f.Sources = append(f.Sources, source.New(apiserver.API, a.cluster.RunPods))
	}
	f.Sources = append(f.Sources, a.options.Sources...)
	return f
}

// setPods passes all pods of one source to the reconciler and to the reporters for the API server. Options.Transform has already changed the pods.
func (a *Agent) setPods(set lifecycle.PodSet) {
	if err := a.pods.Reconciler().Set(set); err != nil {
		a.log.Error("pods", "source", set.Source, "error", err)
	}
	if a.cluster != nil {
		a.cluster.Set(set)
	}
}

// addManifestServer adds a server for manifestSocket, a unix socket on which local programs create and delete the static pods in staticPodPath.
func (a *Agent) addManifestServer(context.Context, *lifecycle.Options) error {
	k, n := &a.config.Kubelet, &a.config.Node
	if n.ManifestSocket == "" {
		return nil
	}
	server, err := nodeapi.New(nodeapi.Options{Insecure: true, Logger: a.log}) // the file mode of the socket restricts its clients
	if err != nil {
		return err
	}
	handler := source.NewHandler(k.StaticPodPath, source.HandlerOptions{
		NodeName: n.NodeName, AllowObjects: n.ObjectsDir != "", AllowTokens: n.Kubeconfig != "", Status: func(uid string) *corev1.PodStatus {
			state, _ := a.pods.Pod(uid)
			return state.Status
		},
	})
	a.parts.Add("manifest socket", func(ctx context.Context) error {
		l, err := podsapi.Listen(n.ManifestSocket)
		if err != nil {
			return err
		}
		return server.Run(ctx, nodeapi.Endpoint{Listener: l, Handler: handler})
	})
	return nil
}

// setPodOptions sets the options of the reconciler and its hooks, which report changes of pods.
func (a *Agent) setPodOptions(_ context.Context, opts *lifecycle.Options) error {
	k, n := &a.config.Kubelet, &a.config.Node
	dns, _ := k.DNS() // validated
	if n.AdoptPods {
		takeover.RemoveStale(a.filePath(""), a.log, takeover.NewCheckpoint("devices", "device-plugins/"+plugin.CheckpointName, plugin.ReadCheckpoint),
			takeover.NewCheckpoint("cpus", cpus.CheckpointName, (&cpus.Policy{}).ReadCheckpoint), takeover.NewCheckpoint("memory", numa.CheckpointName, numa.ReadCheckpoint))
	}
	*opts = lifecycle.Options{
		AdoptUnlabeled: n.AdoptPods, Sources: sourceNames(&a.config, &a.options), Pacing: lifecycle.Pacing{Parallel: n.ParallelStarts, Rand: a.options.Rand}, AllowedUnsafeSysctls: k.AllowedUnsafeSysctls,
		Spec: podspec.Options{
			HostIPs: a.hostIPs, Allocatable: a.node.Allocatable, LogRoot: k.PodLogsDir, ClusterDNS: dns, ClusterDomain: k.ClusterDomain,
			Warn: func(pod *corev1.Pod, reason, message string) {
				a.recordPodEvent(pod, corev1.EventTypeWarning, reason, message)
			},
		},
		AppArmorError: machine.AppArmor(os.DirFS("/")),
		Dirs:          lifecycle.Dirs{Pods: a.filePath("pods"), LogLinks: n.ContainerLogsDir, LoseStatuses: a.options.Ephemeral},
		NoMounts:      a.client == nil, Objects: a.options.Objects, Probes: a.createProbes(), Logger: a.log,
	}
	if a.options.Ephemeral { // without a file for a random owner ID, a restarted agent must have an equal one
		opts.Owner = n.NodeName
	}
	if a.client != nil {
		opts.Spec.ResolvConf = k.HostDNS()
		opts.Spec.NoResolvConf = opts.Spec.ResolvConf == nil
	} else if !*k.CgroupsPerQOS { // the cgroups report more of the machine
		opts.Spec.Node = &qos.Node{MemoryCapacity: a.machine.Memory}
	}
	hooks := []lifecycle.Hooks{a.options.Hooks.Lifecycle, {StatusChanged: a.logStatus, Event: a.recordEvent}}
	switch {
	case a.cluster != nil:
		opts.Objects, opts.Spec.RuntimeClasses = a.cluster.Objects, a.cluster.Objects.RuntimeClass
		hooks = append(hooks, a.cluster.Hooks())
	case n.ObjectsDir != "":
		opts.Objects = objects.NewDir(n.ObjectsDir)
	}
	if !a.options.Ephemeral {
		hooks = append(hooks, a.addPodsAPI())
	}
	opts.Hooks = a.metrics.Lifecycle(hooks...)
	return nil
}

// addPodsAPI adds a gRPC server that reports the pods to programs of this machine. The returned hooks notify the server of changed pods.
func (a *Agent) addPodsAPI() lifecycle.Hooks {
	o := podsapi.Options{Logger: a.log}
	o.Hooks.CallCompleted, o.Hooks.WatcherDropped = a.metrics.PodsAPI()
	server := podsapi.New(podsapi.PodsWithStatus(&a.pods), o)
	a.parts.Add("pods API", func(ctx context.Context) error {
		return server.ListenAndRun(ctx, a.filePath("pods-api/pods-api.sock"), a.log)
	})
	return lifecycle.Hooks{StatusChanged: server.StatusChanged, ResourcesReleased: server.ResourcesReleased, PodRemoved: server.PodRemoved}
}

// createProbes creates the engine that runs the probes of pods. Probe results are stored in a file for the next start of the agent.
func (a *Agent) createProbes() lifecycle.Probes {
	if a.options.Probes != nil {
		return a.options.Probes
	}
	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
	hooks := a.metrics.Probes(a.options.Hooks.Probes, podevents.Probes(&a.pods, a.recordEvent))
	set := probe.NewSet(probe.Options{Store: a.filePath("probes"), Logger: a.log, Hooks: hooks, Rand: a.options.Rand})
	a.parts.Add("probes", func(ctx context.Context) error { defer pool.Close(); return set.Run(ctx) })
	o := podprobe.Options{Pool: pool, GRPC: func(g podprobe.GRPCConfig) (probe.Prober, error) {
		return grpcprobe.New(grpcprobe.Config{Host: g.Host, Port: g.Port, Service: g.Service, TLS: g.TLS})
	}}
	if execer, ok := a.runtime.(cri.Execer); ok {
		o.Execer = podprobe.CRI(execer)
	}
	return podprobe.NewPods(set, o)
}

func (a *Agent) logStatus(pod *corev1.Pod, st *corev1.PodStatus) {
	a.log.Info("status", "namespace", pod.Namespace, "pod", pod.Name, "phase", st.Phase, "summary", podstatus.Summary(st))
}

// recordEvent logs an event of a pod, and passes it to the API server and to Hooks.Event.
func (a *Agent) recordEvent(pod cri.PodIdentity, event podevents.Event) {
	a.recordAnnotatedEvent(pod, event, nil)
}

func (a *Agent) recordAnnotatedEvent(pod cri.PodIdentity, event podevents.Event, annotations map[string]string) {
	log := a.log
	if len(annotations) > 0 {
		log = log.With("annotations", annotations)
	}
	log.Info("event", "namespace", pod.Namespace, "pod", pod.Name, "", event)
	if a.cluster != nil {
		a.cluster.Recorder.AnnotatedPodEvent(pod, event, annotations)
	}
	if hook := a.options.Hooks.Event; hook != nil {
		hook(pod, event, annotations)
	}
}

func (a *Agent) recordPodEvent(pod *corev1.Pod, kind, reason, message string) {
	a.recordEvent(cri.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}, podevents.Event{Type: kind, Reason: reason, Message: message})
}
