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

// hooks runs the hooks of the containers of a pod.
type hooks struct {
	runner    *hook.Runner
	reporter  *Reporter
	addresses *addresses
}

func newHooks(node *Node, reporter *Reporter, addresses *addresses) *hooks {
	h := &hooks{reporter: reporter, addresses: addresses}
	h.runner = hook.New(hook.Options{Execer: node.execer, Hooks: hook.Hooks{
		HTTPFallback: h.recordFallback, SleepTerminated: func(hook.Call) { reporter.sleepTerminated() },
	}})
	return h
}

// run runs a hook.
func (h *hooks) run(ctx context.Context, call hook.Call, handler *corev1.LifecycleHandler) error {
	return h.runner.Run(ctx, call, handler)
}

// recordFallback records the event of a hook whose server does not speak TLS, although the hook asks for it.
func (h *hooks) recordFallback(c hook.Call, message string) {
	h.reporter.RecordWarning(podevents.ReasonLifecycleHTTPFallback, subjectOfCall(c), "%s", message)
}

// preStopCall returns the container that a preStop hook runs for. Of a pod or container without a spec, it is restored from the
// annotations of the container.
func (h *hooks) preStopCall(pod *corev1.Pod, observed cri.Pod, k plan.Kill) hook.Call {
	call := hook.Call{
		Pod: pod, ContainerID: k.ID, Container: &corev1.Container{Name: k.Name},
		Attempt: subjectOf(observed, k.Name, k.ID).attempt,
	}
	var ips []string
	if s := observed.NewestSandbox(); s != nil {
		ips = s.IPs
	}
	if pod != nil {
		if c := containers.Named(&pod.Spec, k.Name); c != nil {
			call.Container = c
		}
		call.PodIP = hookAddress(h.addresses.of(pod, ips))
		return call
	}
	for i := range observed.Containers {
		if c := &observed.Containers[i]; c.ID == k.ID {
			restored, _ := hook.Restore(c) // a field that cannot be read is left out
			call.Pod, call.Container = restored.Pod, restored.Container
		}
	}
	call.PodIP = hookAddress(ips)
	return call
}

// hookAddress returns the address that a hook asks at: the primary one of the pod.
func hookAddress(ips []string) string {
	for _, ip := range ips {
		if addr, ok := podip.Parse(ip); ok {
			return addr.String()
		}
	}
	return ""
}
