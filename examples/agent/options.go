// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// options are what the config says of how pods run, and where it is told what becomes of them.
func (a *agent) options() lifecycle.Options {
	o := lifecycle.Options{
		Sources: a.sources(), Pacing: lifecycle.Pacing{Parallel: a.ParallelStarts}, Sysctls: a.AllowedSysctls, Logger: a.log,
		Spec: podspec.Options{
			HostIPs: a.hostIPs, Allocatable: a.allocatable, LogRoot: a.LogDir, ClusterDNS: a.ClusterDNS, ClusterDomain: a.ClusterDomain,
			Warn: func(pod *corev1.Pod, reason, message string) {
				a.podEvent(pod, corev1.EventTypeWarning, reason, message)
			},
		},
		AppArmor: machine.AppArmor(os.DirFS("/")),
		Dirs:     lifecycle.Dirs{Pods: a.state("pods"), LogLinks: a.LogLinkDir}, NoMounts: a.client == nil,
		Hooks: lifecycle.Hooks{Status: func(pod *corev1.Pod, st *corev1.PodStatus) {
			a.log.Info("status", "namespace", pod.Namespace, "pod", pod.Name, "phase", st.Phase, "summary", summary(st))
		}, Event: a.event},
	}
	switch {
	case a.cluster != nil:
		o.Objects, o.Spec.RuntimeClasses = a.cluster.objects, a.cluster.objects.RuntimeClass
		a.cluster.tell(&o.Hooks)
	case a.Objects != "":
		o.Objects = objects.NewDir(a.Objects)
	}
	a.tellPrograms(&o.Hooks)
	return o
}

// event tells what was done to a pod, or went wrong with it.
func (a *agent) event(pod cri.PodIdentity, e lifecycle.Event) { a.annotated(pod, e, nil) }

// annotated does so with what programs are to read of it.
func (a *agent) annotated(pod cri.PodIdentity, e lifecycle.Event, annotations map[string]string) {
	log := a.log
	if len(annotations) > 0 {
		log = log.With("annotations", annotations)
	}
	log.Info("event", "namespace", pod.Namespace, "pod", pod.Name, "", e)
	if a.cluster != nil {
		a.cluster.recorder.AnnotatedPodEvent(pod, e, annotations)
	}
}

// podEvent does the same for what knows the whole pod.
func (a *agent) podEvent(pod *corev1.Pod, kind, reason, message string) {
	a.event(cri.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}, lifecycle.Event{Type: kind, Reason: reason, Message: message})
}

// summary is what kubectl would show of a pod.
func summary(st *corev1.PodStatus) string {
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
