// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// options are what the config says of how pods run, and where it is told what becomes of them.
func (a *agent) options() lifecycle.Options {
	o := lifecycle.Options{
		Sources: a.sources(), Pacing: lifecycle.Pacing{Parallel: a.ParallelStarts}, Sysctls: a.AllowedSysctls, Logger: a.log,
		Spec: podspec.Options{
			HostIPs: func() []netip.Addr { return a.HostIPs }, LogRoot: a.LogDir, ClusterDNS: a.ClusterDNS, ClusterDomain: a.ClusterDomain,
		},
		Dirs: lifecycle.Dirs{Pods: a.state("pods")}, NoMounts: a.client == nil,
		Hooks: lifecycle.Hooks{Status: func(pod *corev1.Pod, st *corev1.PodStatus) {
			a.log.Info("status", "namespace", pod.Namespace, "pod", pod.Name, "phase", st.Phase, "summary", summary(st))
		}, Event: func(pod cri.PodIdentity, e lifecycle.Event) {
			a.log.Info("event", "namespace", pod.Namespace, "pod", pod.Name, "", e)
		}},
	}
	if a.Objects != "" {
		o.Objects = objects.NewDir(a.Objects)
	}
	return o
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
