// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// start creates the sandbox, if one is planned, and starts containers in it, each independent of the others.
func (x *Executor) start(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions) error {
	var id string
	var ips []string
	sandbox, err := x.configureSandbox(pod, observed, a)
	switch {
	case err == nil:
		id, ips, err = x.ensureSandbox(ctx, pod, observed, a, &sandbox)
	case a.Sandbox != nil && ctx.Err() == nil:
		x.RecordWarning(EventFailedCreatePodSandBox, Subject{}, failedSandbox, err)
	}
	if err != nil {
		return err
	}
	if pod.Spec.HostNetwork {
		ips = x.hostAddresses(ips, x.pod.podIPs)
	}
	var errs []error
	for _, s := range a.Start {
		if err := ctx.Err(); err != nil {
			return err // what is under way has become pointless
		}
		if observed.NewestContainer(s.Container.Name) == nil {
			s.Attempt = x.attemptsLogged(s.Container.Name)
		}
		began := time.Now()
		containerID, err := x.startContainer(ctx, pod, s, id, &sandbox, ips)
		x.tellStarted(ContainerStart{
			Container: s.Container.Name, Type: typeOf(pod, s.Container.Name), ID: containerID, Attempt: s.Attempt, Took: time.Since(began), Err: err,
		})
		x.Waiting.setError(s.Container.Name, podstatus.ReasonRunError, err)
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*StartError](err)
		if told := ok && e.Reason == podstatus.ReasonPostStartHookError; !told && ctx.Err() == nil {
			x.RecordWarning(EventFailedToStartContainer, subjectOfStart(&s, containerID), "Error: %v", err)
		}
		errs = append(errs, fmt.Errorf("start container %s: %w", s.Container.Name, err))
	}
	return errors.Join(errs...)
}

// failedSandbox is the message of an event of reason FailedCreatePodSandBox.
const failedSandbox = "Failed to create pod sandbox: %v"

// configureSandbox makes the config of the sandbox that is planned, or of the one in use.
func (x *Executor) configureSandbox(pod *corev1.Pod, observed cri.Pod, a *plan.Actions) (c cri.SandboxConfig, err error) {
	var attempt uint32
	if a.Sandbox != nil {
		attempt = a.Sandbox.Attempt
	} else {
		attempt = observed.NewestSandbox().Attempt
	}
	if c, err = podspec.Sandbox(pod, attempt, x.node.Spec); err != nil {
		return c, err
	}
	x.node.Mark(c.Labels)
	c.Annotations = maps.Clone(c.Annotations)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[podview.AnnotationNetwork] = podview.Network(pod).String()
	if a.Sandbox != nil {
		c.Annotations[podstatus.AnnotationStarted] = a.Sandbox.Started.UTC().Format(time.RFC3339)
	}
	return c, nil
}

// ensureSandbox makes the cgroup of the pod and the sandbox, if one is planned. It returns the sandbox that containers are
// started in, and its addresses.
func (x *Executor) ensureSandbox(
	ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *plan.Actions, c *cri.SandboxConfig,
) (id string, ips []string, err error) {
	reason, text := EventFailedToCreatePodContainer, "unable to ensure pod container exists: %v"
	if err = x.ensureCgroup(ctx, pod, observed); err == nil && a.Sandbox != nil {
		x.Resizer.cgroupMade(pod)
	}
	switch {
	case err == nil && a.Sandbox == nil:
		return a.SandboxID, observed.NewestSandbox().IPs, nil
	case err == nil:
		reason, text = EventFailedCreatePodSandBox, failedSandbox
		if c.Attempt > 0 {
			x.RecordEvent(EventSandboxChanged, Subject{}, "Pod sandbox changed, it will be killed and re-created.")
		}
		id, ips, err = x.runSandbox(ctx, pod, c, a.SandboxChanged)
	}
	if err != nil && ctx.Err() == nil {
		x.RecordWarning(reason, Subject{}, text, err)
	}
	return id, ips, err
}

func (x *Executor) runSandbox(ctx context.Context, pod *corev1.Pod, c *cri.SandboxConfig, why string) (id string, ips []string, err error) {
	if c.LogDirectory != "" {
		if err := os.MkdirAll(c.LogDirectory, 0o755); err != nil {
			return "", nil, fmt.Errorf("log directory: %w", err)
		}
	}
	x.Log("run sandbox", "attempt", c.Attempt, "why", why)
	began := time.Now()
	id, err = x.node.Runtime.RunSandbox(ctx, c)
	x.tellSandbox(c, pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers, began, err)
	if err != nil {
		return "", nil, err
	}
	ips, err = x.addresses(ctx, id)
	return id, ips, err
}

// addresses returns the addresses of a sandbox that was just created.
func (x *Executor) addresses(ctx context.Context, sandboxID string) ([]string, error) {
	if x.node.inspector != nil {
		s, err := x.node.inspector.SandboxStatus(ctx, sandboxID)
		return s.IPs, err
	}
	snap, err := x.node.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range snap.Sandboxes {
		if snap.Sandboxes[i].ID == sandboxID {
			return snap.Sandboxes[i].IPs, nil
		}
	}
	return nil, &cri.Error{Op: "List", ID: sandboxID, Err: cri.ErrNotFound}
}

// ContainerStart is an attempt to start a container, or to run the postStart hook that an earlier one still owes it.
type ContainerStart struct {
	Container string
	Type      ContainerType
	ID        string // empty: the container was not created
	Attempt   uint32
	Took      time.Duration // with its image, and its postStart hook
	Err       error         // nil: it runs; often a [*StartError]
}

func (x *Executor) tellStarted(s ContainerStart) {
	if hook := x.node.Started; hook != nil {
		hook(x.id, s)
	}
}

// startContainer creates and starts one container, with its image. It returns the ID of what it has created, also where that
// did not start.
func (x *Executor) startContainer(
	ctx context.Context, pod *corev1.Pod, s plan.Start, sandboxID string, sandbox *cri.SandboxConfig, ips []string,
) (id string, err error) {
	if s.CreatedID != "" {
		return s.CreatedID, x.startCreated(ctx, pod, s, ips)
	}
	launch := podspec.Launch{Attempt: s.Attempt, PodIPs: ips, Annotations: s.Annotations(), TargetID: s.Target}
	size := resize.SizeOf(&pod.Spec, s.Container)
	launch.Annotations[resize.AnnotationResources] = resize.FormatSize(size)
	release := x.holdImages(pod, s.Container)
	defer release()
	if x.node.Images != nil {
		image, err := x.ensureImage(ctx, pod, s.Container, sandbox)
		if err != nil {
			return "", err
		}
		launch.Image, launch.ImageRef = &image, image.ID
	}
	if launch.Volumes, err = x.imageVolumes(ctx, pod, s.Container, sandbox); err != nil {
		return "", err
	}
	config, err := x.configure(ctx, pod, s, sandboxID, launch)
	if err != nil {
		return "", &StartError{Reason: podstatus.ReasonCreateConfigError, Err: err}
	}
	x.node.Mark(config.Labels)
	if sandbox.LogDirectory != "" && config.LogPath != "" {
		if err := os.MkdirAll(filepath.Join(sandbox.LogDirectory, filepath.Dir(config.LogPath)), 0o755); err != nil {
			return "", &StartError{Reason: podstatus.ReasonCreateError, Err: err}
		}
	}
	x.liftAgain(ctx, pod)
	id, err = x.node.Runtime.CreateContainer(ctx, sandboxID, &config, sandbox)
	if err != nil {
		return "", &StartError{Reason: podstatus.ReasonCreateError, Err: err}
	}
	release()
	x.pod.labels.created(sandboxID, pod, s.Container)
	x.Resizer.created(id, size)
	x.Log("start container", "container", s.Container.Name, "id", id, "attempt", s.Attempt)
	x.RecordEvent(EventCreatedContainer, subjectOfStart(&s, id), "Container created")
	return id, x.runCreated(ctx, pod, s, id, ips)
}

// configure makes the config of a container, with the files and the objects that it takes.
func (x *Executor) configure(ctx context.Context, pod *corev1.Pod, s plan.Start, sandboxID string, l podspec.Launch) (c cri.ContainerConfig, err error) {
	if err = x.addResources(ctx, pod, s.Container, &l); err != nil {
		return c, err
	}
	x.pod.labels.skip(sandboxID, pod, s.Container, &l)
	if l.References, err = podenv.Resolve(ctx, pod, s.Container, x.node.Objects, podspec.HostPaths(l.Volumes)); err != nil {
		return c, err
	}
	if l.HostsPath, err = x.mounts.Hosts(pod, l.PodIPs, x.node.Spec); err != nil {
		return c, err
	}
	if l.TerminationLogPath, err = x.mounts.MakeMessageFile(s.Container.Name, s.Attempt); err != nil {
		return c, err
	}
	return podspec.Container(pod, s.Container, l, x.node.Spec)
}

// startCreated starts a container that was created before, by this agent or by one that died in between.
func (x *Executor) startCreated(ctx context.Context, pod *corev1.Pod, s plan.Start, ips []string) error {
	if s.Running {
		return x.postStart(ctx, pod, s, s.CreatedID, ips)
	}
	x.Log("start container", "container", s.Container.Name, "id", s.CreatedID, "attempt", s.Attempt, "created", "before")
	x.liftAgain(ctx, pod)
	return x.runCreated(ctx, pod, s, s.CreatedID, ips)
}

// runCreated starts a created container and runs its postStart hook.
func (x *Executor) runCreated(ctx context.Context, pod *corev1.Pod, s plan.Start, id string, ips []string) error {
	c := s.Container
	if err := ctx.Err(); err != nil {
		return err
	}
	hooked := c.Lifecycle != nil && c.Lifecycle.PostStart != nil
	if hooked { // whatever becomes of the call, and of the agent
		x.Note(x.record, func(now *poddir.Record) {
			if !slices.Contains(now.PostStartPending, id) {
				now.PostStartPending = append(slices.Clone(now.PostStartPending), id)
			}
		})
	}
	nudge(x.quota.runs)
	if err := x.node.Runtime.StartContainer(ctx, id); err != nil {
		return &StartError{Reason: podstatus.ReasonRunError, Err: err}
	}
	x.RecordEvent(EventStartedContainer, subjectOfStart(&s, id), "Container started")
	x.linkLog(c.Name, id, s.Attempt)
	if !hooked {
		return nil
	}
	x.LimitNow(ctx, pod) // a hook may take as long as it likes
	return x.postStart(ctx, pod, s, id, ips)
}

// postStart runs the postStart hook of a container that runs, at least once to its end. If it fails, the container is
// stopped like any other.
func (x *Executor) postStart(ctx context.Context, pod *corev1.Pod, s plan.Start, id string, ips []string) error {
	c := s.Container
	call := hook.Call{Pod: pod, Container: c, ContainerID: id, Attempt: s.Attempt, PodIP: hookAddress(ips)}
	err := x.hooks.Run(ctx, call, c.Lifecycle.PostStart)
	if err == nil {
		x.Note(x.record, func(now *poddir.Record) {
			now.PostStartPending = slices.DeleteFunc(slices.Clone(now.PostStartPending), func(other string) bool { return other == id })
		})
		return nil
	}
	if ctx.Err() == nil {
		x.RecordWarning(EventFailedPostStartHook, subjectOfStart(&s, id), hook.MessageFailedPostStartHook)
		x.RecordEvent(EventKillingContainer, subjectOfStart(&s, id), hook.MessageKillingPostStart)
	}
	kill := plan.Kill{ID: id, Name: c.Name, Grace: plan.Grace(pod), Reason: "its postStart hook failed"}
	kill.PreStop = plan.PreStop(pod, &cri.Container{Name: c.Name, State: cri.ContainerRunning})
	return &StartError{Reason: podstatus.ReasonPostStartHookError, Err: errors.Join(err, x.kill(ctx, call, kill, nil))}
}

// linkLog makes the link to the log of a container that was started.
func (x *Executor) linkLog(container, id string, attempt uint32) {
	if err := x.logs.Link(container, id, attempt); err != nil {
		x.Warn("link log", "container", container, "error", err)
	}
}

// attemptsLogged returns the attempt after the newest one of a container that there is a log of.
func (x *Executor) attemptsLogged(container string) uint32 {
	n, err := x.logs.Attempts(container)
	if err != nil {
		x.Warn("logs of a container", "container", container, "error", err)
	}
	return n
}
