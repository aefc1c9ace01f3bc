// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// checkNetwork returns an error if nothing of the pod is to be started, because the network of pods is not ready and it is not on
// that of the host. The answer is waited for only where a sandbox is to be created, which is what needs a network. Source: podevents.SyncPod
// in pkg/kubelet/kubelet.go.
func (x *Executor) checkNetwork(ctx context.Context, pod *corev1.Pod, a *plan.Actions) error {
	if pod.Spec.HostNetwork || x.node.Network == nil {
		return nil
	}
	err := x.node.Network(ctx, x.reporter.id.UID, a.Sandbox != nil)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("network is not ready: %w", err)
	for _, s := range a.Start {
		x.Waiting.setError(s.Container.Name, podstatus.ReasonContainerCreating, err)
	}
	if ctx.Err() == nil {
		x.reporter.RecordWarning(podevents.ReasonNetworkNotReady, Subject{}, "%v", err)
	}
	return err
}
