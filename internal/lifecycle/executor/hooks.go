// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/internal/podip"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// hooks runs the postStart and preStop hooks of the containers of a pod.
type hooks struct {
	runner    *hook.Runner
	reporter  *Reporter
	addresses *podAddresses
}

func newHooks(node *Node, reporter *Reporter, addresses *podAddresses) *hooks {
	h := &hooks{reporter: reporter, addresses: addresses}
	h.runner = hook.New(hook.Options{Execer: node.execer, Hooks: hook.Hooks{
		HTTPFallback: h.recordFallback, SleepTerminated: func(hook.Call) { reporter.reportSleepTerminated() },
	}})
	return h
}

// runHook runs handler in the container of call until the handler returns or ctx ends.
func (h *hooks) runHook(ctx context.Context, call hook.Call, handler *corev1.LifecycleHandler) error {
	return h.runner.Run(ctx, call, handler)
}

// recordFallback records the event LifecycleHTTPFallback with message. It is called if a hook requires HTTPS, but its server only
// speaks HTTP.
func (h *hooks) recordFallback(call hook.Call, message string) {
	h.reporter.RecordWarning(podevents.ReasonLifecycleHTTPFallback, subjectOfCall(call), "%s", message)
}

// newPreStopCall returns the arguments for the preStop hook of a container. If pod is nil, they come from the annotations of
// the container.
func (h *hooks) newPreStopCall(pod *corev1.Pod, observed cri.Pod, kill plan.Kill) hook.Call {
	call := hook.Call{
		Pod: pod, ContainerID: kill.ID, Container: &corev1.Container{Name: kill.Name},
		Attempt: subjectOf(observed, kill.Name, kill.ID).attempt,
	}
	var ips []string
	if s := observed.NewestSandbox(); s != nil {
		ips = s.IPs
	}
	if pod != nil {
		if c := containers.Named(&pod.Spec, kill.Name); c != nil {
			call.Container = c
		}
		call.PodIP = primaryIP(h.addresses.podIPs(pod, ips))
		return call
	}
	for i := range observed.Containers {
		if c := &observed.Containers[i]; c.ID == kill.ID {
			restored, _ := hook.Restore(c) // ignore the error: a field that cannot be read stays empty
			call.Pod, call.Container = restored.Pod, restored.Container
		}
	}
	call.PodIP = primaryIP(ips)
	return call
}

// primaryIP returns the first valid IP address of ips, or "" if there is none. Hooks send HTTP requests to this address.
func primaryIP(ips []string) string {
	for _, ip := range ips {
		if addr, ok := podip.Parse(ip); ok {
			return addr.String()
		}
	}
	return ""
}
