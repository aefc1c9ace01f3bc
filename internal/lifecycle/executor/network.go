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

// checkNetwork returns an error if the pod network is not ready. The error becomes the waiting reason of the containers to
// start. Source: SyncPod in pkg/kubelet/kubelet.go.
func (x *Executor) checkNetwork(ctx context.Context, pod *corev1.Pod, actions *plan.Actions) error {
	if pod.Spec.HostNetwork || x.node.CheckNetwork == nil {
		return nil
	}
	// Only the start of a sandbox may wait for the status of the runtime.
	err := x.node.CheckNetwork(ctx, x.reporter.id.UID, actions.Sandbox != nil)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("network is not ready: %w", err)
	for _, s := range actions.Start {
		x.WaitingReasons.setError(s.Container.Name, podstatus.ReasonContainerCreating, err)
	}
	if ctx.Err() == nil {
		x.reporter.RecordWarning(podevents.ReasonNetworkNotReady, Subject{}, "%v", err)
	}
	return err
}
