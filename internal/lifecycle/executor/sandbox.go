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

// sandbox is the sandbox that containers are started in.
type sandbox struct {
	id     string
	ips    []string // of the pod
	config cri.SandboxConfig
}

// sandboxRunner creates and starts the sandbox of a pod, and before that its cgroup.
type sandboxRunner struct {
	node     *Node
	reporter *Reporter
	quota    *Quota
	resizer  *Resizer
}

// failedSandbox is the message of an event of reason FailedCreatePodSandBox.
const failedSandbox = "Failed to create pod sandbox: %v"

// ensure creates the cgroup of the pod and the sandbox of a, if there is one. It returns the sandbox that containers are started in.
func (r *sandboxRunner) ensure(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) (*sandbox, error) {
	warn := func(reason, text string, err error) error {
		if ctx.Err() == nil {
			r.reporter.RecordWarning(reason, Subject{}, text, err)
		}
		return err
	}
	config, err := r.configure(pod, observed, a)
	if err != nil {
		if a.Sandbox == nil {
			return nil, err
		}
		return nil, warn(podevents.ReasonFailedCreatePodSandBox, failedSandbox, err)
	}
	if err := r.quota.ensureCgroup(ctx, pod, observed); err != nil {
		return nil, warn(podevents.ReasonFailedToCreatePodContainer, "unable to ensure pod container exists: %v", err)
	}
	if a.Sandbox == nil {
		return &sandbox{id: a.SandboxID, ips: observed.NewestSandbox().IPs, config: config}, nil
	}
	r.resizer.cgroupMade(pod)
	if config.Attempt > 0 {
		r.reporter.RecordEvent(podevents.ReasonSandboxChanged, Subject{}, "Pod sandbox changed, it will be killed and re-created.")
	}
	sb := &sandbox{config: config}
	if err := r.run(ctx, pod, sb, a.SandboxChangeReason); err != nil {
		return nil, warn(podevents.ReasonFailedCreatePodSandBox, failedSandbox, err)
	}
	return sb, nil
}

// configure returns the config of the sandbox that is planned, or of the one in use.
func (r *sandboxRunner) configure(pod *corev1.Pod, observed cri.Pod, a *plan.Actions) (c cri.SandboxConfig, err error) {
	var attempt uint32
	if a.Sandbox != nil {
		attempt = a.Sandbox.Attempt
	} else {
		attempt = observed.NewestSandbox().Attempt
	}
	if c, err = podspec.Sandbox(pod, attempt, r.node.Spec); err != nil {
		return c, err
	}
	r.node.Mark(c.Labels)
	c.Annotations = maps.Clone(c.Annotations)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[podview.AnnotationNetwork] = podview.Network(pod).String()
	if a.Sandbox != nil {
		c.Annotations[podstatus.AnnotationStarted] = a.Sandbox.PodStarted.UTC().Format(time.RFC3339)
	}
	return c, nil
}

// run runs sb, whose ID and addresses it sets. reason is why a sandbox before it was not kept.
func (r *sandboxRunner) run(ctx context.Context, pod *corev1.Pod, sb *sandbox, reason string) (err error) {
	if dir := sb.config.LogDirectory; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("log directory: %w", err)
		}
	}
	r.reporter.Log("run sandbox", "attempt", sb.config.Attempt, "why", reason)
	began := time.Now()
	sb.id, err = r.node.Runtime.RunSandbox(ctx, &sb.config)
	r.reporter.sandboxRun(podevents.SandboxStart{
		Attempt: sb.config.Attempt, RuntimeHandler: sb.config.RuntimeHandler,
		UserNamespace: pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers, Took: time.Since(began), Err: err,
	})
	if err != nil {
		return err
	}
	sb.ips, err = r.inspectIPs(ctx, sb.id)
	return err
}

// inspectIPs returns the addresses of a sandbox that was just created.
func (r *sandboxRunner) inspectIPs(ctx context.Context, id string) ([]string, error) {
	if r.node.inspector != nil {
		s, err := r.node.inspector.SandboxStatus(ctx, id)
		return s.IPs, err
	}
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
