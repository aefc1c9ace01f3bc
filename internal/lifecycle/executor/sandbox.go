// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// sandbox is the sandbox in which the containers of a pod are started.
type sandbox struct {
	id     string
	ips    []string // IP addresses of the pod
	config cri.SandboxConfig
}

// sandboxRunner creates the cgroup of a pod and runs its sandbox.
type sandboxRunner struct {
	node     *Node
	reporter *Reporter
	quota    *Quota
	resizer  *Resizer
}

// failedSandbox is the message of the event FailedCreatePodSandBox.
const failedSandbox = "Failed to create pod sandbox: %v"

// ensureSandbox creates or updates the pod cgroup and returns the sandbox for the containers: a new one if planned.
func (r *sandboxRunner) ensureSandbox(ctx context.Context, pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) (*sandbox, error) {
	warn := func(reason, text string, err error) error {
		if ctx.Err() == nil {
			r.reporter.RecordWarning(reason, Subject{}, text, err)
		}
		return err
	}
	config, err := r.buildConfig(pod, observed, actions)
	if err != nil {
		if actions.Sandbox == nil {
			return nil, err
		}
		return nil, warn(podevents.ReasonFailedCreatePodSandBox, failedSandbox, err)
	}
	if err := r.quota.ensureCgroup(ctx, pod, observed); err != nil {
		return nil, warn(podevents.ReasonFailedToCreatePodContainer, "unable to ensure pod container exists: %v", err)
	}
	if actions.Sandbox == nil {
		return &sandbox{id: actions.SandboxID, ips: observed.NewestSandbox().IPs, config: config}, nil
	}
	r.resizer.setCgroupCreated(pod)
	if config.Attempt > 0 {
		r.reporter.RecordEvent(podevents.ReasonSandboxChanged, Subject{}, "Pod sandbox changed, it will be killed and re-created.")
	}
	sb := &sandbox{config: config}
	if err := r.runSandbox(ctx, pod, sb, actions.SandboxChangeReason); err != nil {
		return nil, warn(podevents.ReasonFailedCreatePodSandBox, failedSandbox, err)
	}
	return sb, nil
}

// buildConfig returns the CRI config of the planned sandbox, or else of the existing one, in which containers are created.
func (r *sandboxRunner) buildConfig(pod *corev1.Pod, observed cri.Pod, actions *plan.Actions) (c cri.SandboxConfig, err error) {
	var attempt uint32
	if actions.Sandbox != nil {
		attempt = actions.Sandbox.Attempt
	} else {
		attempt = observed.NewestSandbox().Attempt
	}
	if c, err = podspec.Sandbox(pod, attempt, r.node.Spec); err != nil {
		return c, err
	}
	r.node.MarkOwner(c.Labels)
	c.Annotations = maps.Clone(c.Annotations)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[podview.AnnotationNetwork] = podview.NetworkModeOf(pod).String()
	if actions.Sandbox != nil {
		c.Annotations[podstatus.AnnotationStarted] = actions.Sandbox.PodStarted.UTC().Format(time.RFC3339)
	}
	return c, nil
}

// runSandbox runs a new sandbox with the config in sb, and sets its ID and IP addresses. reason is for the log.
func (r *sandboxRunner) runSandbox(ctx context.Context, pod *corev1.Pod, sb *sandbox, reason string) (err error) {
	if dir := sb.config.LogDirectory; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create log directory: %w", err)
		}
	}
	r.reporter.Log("run sandbox", "attempt", sb.config.Attempt, "why", reason)
	began := time.Now()
	sb.id, err = r.node.Runtime.RunSandbox(ctx, &sb.config)
	r.reporter.reportSandboxStart(podevents.SandboxStart{
		Attempt: sb.config.Attempt, RuntimeHandler: sb.config.RuntimeHandler,
		UserNamespace: pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers, Took: time.Since(began), Err: err,
	})
	if err != nil {
		return err
	}
	sb.ips, err = r.inspectIPs(ctx, sb.id)
	return err
}

// inspectIPs returns the IP addresses of a new sandbox.
func (r *sandboxRunner) inspectIPs(ctx context.Context, id string) ([]string, error) {
	if r.node.inspector != nil {
		s, err := r.node.inspector.SandboxStatus(ctx, id)
		return s.IPs, err
	}
	// The runtime does not implement cri.Inspector.
	snap, err := r.node.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range snap.Sandboxes {
		if snap.Sandboxes[i].ID == id {
			return snap.Sandboxes[i].IPs, nil
		}
	}
	return nil, &cri.Error{Op: "List", ID: id, Err: cri.ErrNotFound}
}
