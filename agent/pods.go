// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/qos"
)

// podOptions returns how pods run, and the hooks that report on them.
func (a *Agent) podOptions() lifecycle.Options {
	k, n := &a.config.Kubelet, &a.config.Node
	dns, _ := k.DNS() // validated
	o := lifecycle.Options{
		Sources: a.config.sourceNames(&a.options), Pacing: lifecycle.Pacing{Parallel: n.ParallelStarts}, Sysctls: k.AllowedUnsafeSysctls, Logger: a.log,
		Spec: podspec.Options{
			HostIPs: a.hostIPs, Allocatable: a.node.Allocatable, LogRoot: k.PodLogsDir, ClusterDNS: dns, ClusterDomain: k.ClusterDomain,
			Warn: func(pod *corev1.Pod, reason, message string) {
				a.podEvent(pod, corev1.EventTypeWarning, reason, message)
			},
		},
		AppArmor: machine.AppArmor(os.DirFS("/")),
		Dirs:     lifecycle.Dirs{Pods: a.config.path("pods"), LogLinks: n.ContainerLogsDir},
		NoMounts: a.client == nil, Owner: a.owner(), Objects: a.options.Objects, Probes: a.probes(),
	}
	if a.client == nil { // without cgroups, which would say more of the machine
		o.Spec.Node = &qos.Node{MemoryCapacity: a.node.memory}
	}
	hooks := []lifecycle.Hooks{a.options.Hooks.Lifecycle, {Status: a.logStatus, Event: a.event}}
	switch {
	case a.cluster != nil:
		o.Objects, o.Spec.RuntimeClasses = a.cluster.objects, a.cluster.objects.RuntimeClass
		hooks = append(hooks, a.cluster.hooks())
	case n.ObjectsDir != "":
		o.Objects = objects.NewDir(n.ObjectsDir)
	}
	if a.config.serves() {
		hooks = append(hooks, a.servePodsAPI())
	}
	o.Hooks = a.meter.Lifecycle(hooks...)
	return o
}

// owner returns the owner of the pods. Empty: a random one that is kept on disk. Without a disk it is the name of the node, so that the next agent
// of a runtime that goes on has the same.
func (a *Agent) owner() string {
	if a.options.Ephemeral {
		return a.config.Node.NodeName
	}
	return ""
}

// servePodsAPI serves the pods to programs of this machine, by the kubelet's pods API, and returns the hooks that tell the API of changes.
func (a *Agent) servePodsAPI() lifecycle.Hooks {
	o := podsapi.Options{Logger: a.log}
	o.Hooks.Answered, o.Hooks.Dropped = a.meter.PodsAPI()
	server := podsapi.New(podsapi.SourceFunc(func() (list []podsapi.Pod, ready bool) {
		for _, state := range a.pods.Pods() {
			if state.Spec != nil && !state.Deleted {
				list = append(list, podsapi.Pod{Pod: state.Spec, Status: state.Status})
			}
		}
		_, ready = a.pods.Active()
		return list, ready
	}), o)
	a.add("pods API", func(ctx context.Context) error {
		l, err := podsapi.Listen(a.config.path("pods-api/pods-api.sock"))
		if err != nil { // such as a path that is too long for a socket: the node has its pods all the same
			a.log.Error("the pods API is not served", "error", err)
			return nil
		}
		return server.Run(ctx, l)
	})
	return lifecycle.Hooks{Status: server.Updated, Left: server.Terminated, Gone: server.Removed}
}

func (a *Agent) logStatus(pod *corev1.Pod, st *corev1.PodStatus) {
	a.log.Info("status", "namespace", pod.Namespace, "pod", pod.Name, "phase", st.Phase, "summary", summarize(st))
}

// event reports an event of a pod to the log, the API server and the hooks.
func (a *Agent) event(pod cri.PodIdentity, e podevents.Event) { a.annotatedEvent(pod, e, nil) }

func (a *Agent) annotatedEvent(pod cri.PodIdentity, e podevents.Event, annotations map[string]string) {
	log := a.log
	if len(annotations) > 0 {
		log = log.With("annotations", annotations)
	}
	log.Info("event", "namespace", pod.Namespace, "pod", pod.Name, "", e)
	if a.cluster != nil {
		a.cluster.recorder.AnnotatedPodEvent(pod, e, annotations)
	}
	if hook := a.options.Hooks.Event; hook != nil {
		hook(pod, e, annotations)
	}
}

func (a *Agent) podEvent(pod *corev1.Pod, kind, reason, message string) {
	a.event(cri.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}, podevents.Event{Type: kind, Reason: reason, Message: message})
}

// summarize returns what kubectl get shows of a pod.
func summarize(st *corev1.PodStatus) string {
	ready, restarts, why := 0, int32(0), st.Reason
	for _, c := range st.ContainerStatuses {
		restarts += c.RestartCount
		switch s := c.State; {
		case c.Ready:
			ready++
		case s.Waiting != nil:
			why = s.Waiting.Reason
		case s.Terminated != nil:
			why = s.Terminated.Reason + " " + s.Terminated.Message
		}
	}
	return fmt.Sprintf("%d/%d restarts=%d %s", ready, len(st.ContainerStatuses), restarts, why)
}
