// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/hook"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// do carries out a plan, in the order of Actions. A failure ends what builds on it and nothing else.
func (w *worker) do(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *Actions) error {
	errs := []error{w.limitRunning(ctx, pod, observed, a)}
	if err := w.stop(ctx, pod, observed, a); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if a.Forget {
		w.unlinkLogs(observed.Containers)
		w.forget()
	}
	for _, id := range a.Remove {
		errs = append(errs, w.remove(ctx, observed, id))
	}
	errs = append(errs, w.resizePod(ctx, pod, a))
	if a.Sandbox != nil || len(a.Start) > 0 {
		if err := w.takeSlot(ctx); err != nil {
			return err
		}
		errs = append(errs, w.start(ctx, pod, observed, a), w.limitStarted(ctx, pod))
		w.releaseSlot()
	}
	for _, id := range a.RemoveSandbox {
		errs = append(errs, w.r.runtime.RemoveSandbox(ctx, id))
	}
	return errors.Join(errs...)
}

// slot waits for a place among the pods that are being started. A place that is held for longer than SlowAfter is
// given up while the work goes on, so that calls that hang cannot take all places.
func (w *worker) slot(ctx context.Context) (release func(), err error) {
	if err := w.r.slots.acquire(ctx); err != nil {
		return nil, err
	}
	free := sync.OnceFunc(w.r.slots.release)
	timer := time.AfterFunc(w.r.opts.SlowAfter, func() {
		w.log("slow start", "after", w.r.opts.SlowAfter)
		free()
	})
	return func() { timer.Stop(); free() }, nil
}

// start creates the sandbox, if one is planned, and starts containers in it, each independent of the others.
func (w *worker) start(ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *Actions) error {
	sandbox, err := w.configureSandbox(pod, observed, a)
	if err != nil {
		return err
	}
	id, ips, err := w.ensureSandbox(ctx, pod, observed, a, &sandbox)
	if err != nil {
		for _, s := range a.Start {
			w.holdFor(s.Container.Name, ReasonContainerCreating, err)
		}
		return err
	}
	if pod.Spec.HostNetwork {
		ips = w.hostAddresses(ips, a.podIPs)
	}
	var errs []error
	for _, s := range a.Start {
		if err := ctx.Err(); err != nil {
			return err // what is under way has become pointless
		}
		if newestContainer(observed.Containers, s.Container.Name, nil) == nil {
			s.Attempt = w.livesLogged(s.Container.Name)
		}
		err := w.startContainer(ctx, pod, s, id, &sandbox, ips)
		w.holdFor(s.Container.Name, ReasonRunError, err)
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*StartError](err)
		if told := ok && e.Reason == ReasonPostStartHookError; !told && ctx.Err() == nil {
			id := s.CreatedID
			if ok {
				id = cmp.Or(e.id, id)
			}
			w.alarm(EventStartFailed, s.subject(id), "%v", err)
		}
		errs = append(errs, fmt.Errorf("start container %s: %w", s.Container.Name, err))
	}
	return errors.Join(errs...)
}

// configureSandbox makes the config of the sandbox that is planned, or of the one in use.
func (w *worker) configureSandbox(pod *corev1.Pod, observed cri.Pod, a *Actions) (c cri.SandboxConfig, err error) {
	var attempt uint32
	if a.Sandbox != nil {
		attempt = a.Sandbox.Attempt
	} else {
		attempt = newestSandbox(observed.Sandboxes).Attempt
	}
	if c, err = podspec.Sandbox(pod, attempt, w.r.opts.Spec); err != nil {
		return c, err
	}
	w.r.mark(c.Labels)
	c.Annotations = maps.Clone(c.Annotations)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[AnnotationNetwork] = network(pod).String()
	if a.Sandbox != nil {
		c.Annotations[AnnotationStarted] = a.Sandbox.Started.UTC().Format(time.RFC3339)
	}
	return c, nil
}

// ensureSandbox makes the cgroup of the pod and the sandbox, if one is planned. It returns the sandbox that containers are
// started in, and its addresses.
func (w *worker) ensureSandbox(
	ctx context.Context, pod *corev1.Pod, observed cri.Pod, a *Actions, c *cri.SandboxConfig,
) (id string, ips []string, err error) {
	reason := EventCgroupFailed
	err = w.ensureCgroup(ctx, pod, observed)
	switch {
	case err == nil && a.Sandbox == nil:
		return a.SandboxID, newestSandbox(observed.Sandboxes).IPs, nil
	case err == nil:
		reason = EventSandboxFailed
		if c.Attempt > 0 {
			w.tell(EventSandboxChanged, subject{}, "the sandbox is replaced: %s", a.SandboxChanged)
		}
		id, ips, err = w.runSandbox(ctx, c, a.SandboxChanged)
	}
	if err != nil && ctx.Err() == nil {
		w.alarm(reason, subject{}, "%v", err)
	}
	return id, ips, err
}

func (w *worker) runSandbox(ctx context.Context, c *cri.SandboxConfig, why string) (id string, ips []string, err error) {
	if c.LogDirectory != "" {
		if err := os.MkdirAll(c.LogDirectory, 0o755); err != nil {
			return "", nil, fmt.Errorf("log directory: %w", err)
		}
	}
	w.log("run sandbox", "attempt", c.Attempt, "why", why)
	id, err = w.r.runtime.RunSandbox(ctx, c)
	if err != nil {
		return "", nil, err
	}
	ips, err = w.addresses(ctx, id)
	return id, ips, err
}

// addresses returns the addresses of a sandbox that was just created.
func (w *worker) addresses(ctx context.Context, sandboxID string) ([]string, error) {
	if w.r.inspector != nil {
		s, err := w.r.inspector.SandboxStatus(ctx, sandboxID)
		return s.IPs, err
	}
	snap, err := w.r.runtime.List(ctx)
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

// startContainer brings one container to life: image, create, start.
func (w *worker) startContainer(
	ctx context.Context, pod *corev1.Pod, s Start, sandboxID string, sandbox *cri.SandboxConfig, ips []string,
) error {
	if s.CreatedID != "" {
		return w.startCreated(ctx, pod, s, ips)
	}
	launch := podspec.Launch{Attempt: s.Attempt, PodIPs: ips, Annotations: s.annotations(), TargetID: s.Target}
	size := sizeOf(&pod.Spec, s.Container)
	launch.Annotations[AnnotationResources] = noteSize(size)
	if w.r.opts.Images != nil {
		image, err := w.ensureImage(ctx, pod, s.Container, sandbox)
		if err != nil {
			return err
		}
		launch.Image, launch.ImageRef = &image, image.ID
	}
	var err error
	if launch.Volumes, err = w.imageVolumes(ctx, pod, s.Container, sandbox); err != nil {
		return err
	}
	config, err := w.configure(ctx, pod, s, launch)
	if err != nil {
		return &StartError{Reason: ReasonCreateConfigError, Err: err}
	}
	w.r.mark(config.Labels)
	if sandbox.LogDirectory != "" && config.LogPath != "" {
		if err := os.MkdirAll(filepath.Join(sandbox.LogDirectory, filepath.Dir(config.LogPath)), 0o755); err != nil {
			return &StartError{Reason: ReasonCreateError, Err: err}
		}
	}
	w.liftAgain(ctx, pod)
	id, err := w.r.runtime.CreateContainer(ctx, sandboxID, &config, sandbox)
	if err != nil {
		return &StartError{Reason: ReasonCreateError, Err: err}
	}
	w.resize.created(id, size)
	w.log("start container", "container", s.Container.Name, "id", id, "attempt", s.Attempt)
	w.tell(EventCreated, s.subject(id), "container created: %s", id)
	return w.runCreated(ctx, pod, s, id, ips)
}

// configure makes the config of a container, with the files and the objects that it takes.
func (w *worker) configure(ctx context.Context, pod *corev1.Pod, s Start, l podspec.Launch) (c cri.ContainerConfig, err error) {
	if l.References, err = podspec.Resolve(ctx, pod, s.Container, w.r.opts.Objects, l.Volumes); err != nil {
		return c, err
	}
	if l.HostsPath, err = w.mounted().hosts(pod, l.PodIPs, w.r.opts.Spec); err != nil {
		return c, err
	}
	if l.TerminationLogPath, err = w.mounted().makeLastWords(s.Container.Name, s.Attempt); err != nil {
		return c, err
	}
	return podspec.Container(pod, s.Container, l, w.r.opts.Spec)
}

// startCreated starts a container that was created before, by this agent or by one that died in between.
func (w *worker) startCreated(ctx context.Context, pod *corev1.Pod, s Start, ips []string) error {
	if s.Running {
		return w.postStart(ctx, pod, s, s.CreatedID, ips)
	}
	w.log("start container", "container", s.Container.Name, "id", s.CreatedID, "attempt", s.Attempt, "created", "before")
	w.liftAgain(ctx, pod)
	return w.runCreated(ctx, pod, s, s.CreatedID, ips)
}

// runCreated starts a created container and runs its postStart hook.
func (w *worker) runCreated(ctx context.Context, pod *corev1.Pod, s Start, id string, ips []string) error {
	c := s.Container
	if err := ctx.Err(); err != nil {
		return err
	}
	hooked := c.Lifecycle != nil && c.Lifecycle.PostStart != nil
	if hooked { // whatever becomes of the call, and of the agent
		w.note(func(now *record) {
			if !slices.Contains(now.Unhooked, id) {
				now.Unhooked = append(slices.Clone(now.Unhooked), id)
			}
		})
	}
	nudge(w.quota.runs)
	if err := w.r.runtime.StartContainer(ctx, id); err != nil {
		return &StartError{Reason: ReasonRunError, Err: err, id: id}
	}
	w.tell(EventStarted, s.subject(id), "container started: %s", id)
	w.linkLog(c.Name, id, s.Attempt)
	if !hooked {
		return nil
	}
	w.limitNow(ctx, pod) // a hook may take as long as it likes
	return w.postStart(ctx, pod, s, id, ips)
}

// postStart runs the postStart hook of a container that runs, at least once to its end. If it fails, the container is
// stopped like any other.
func (w *worker) postStart(ctx context.Context, pod *corev1.Pod, s Start, id string, ips []string) error {
	c := s.Container
	call := hook.Call{Pod: pod, Container: c, ContainerID: id, Attempt: s.Attempt, PodIP: hookAddress(ips)}
	err := w.hooks.Run(ctx, call, c.Lifecycle.PostStart)
	if err == nil {
		w.note(func(now *record) {
			now.Unhooked = slices.DeleteFunc(slices.Clone(now.Unhooked), func(other string) bool { return other == id })
		})
		return nil
	}
	if ctx.Err() == nil {
		w.alarm(EventPostStartHookFailed, s.subject(id), hook.MessageFailedPostStartHook)
		w.tell(EventKilling, s.subject(id), hook.MessageKillingPostStart)
	}
	kill := Kill{ID: id, Name: c.Name, Grace: Grace(pod), Reason: "its postStart hook failed"}
	kill.PreStop = preStop(pod, &cri.Container{Name: c.Name, State: cri.ContainerRunning})
	return &StartError{Reason: ReasonPostStartHookError, Err: errors.Join(err, w.kill(ctx, call, kill, nil)), id: id}
}

// forget removes what the agent itself kept of the pod: its logs and its files.
func (w *worker) forget() {
	if dir := w.logDirectory(); dir != "" && !w.shared {
		if err := os.RemoveAll(dir); err != nil {
			w.warn("remove pod logs", "error", err)
		}
	}
	if err := w.files().remove(); err != nil {
		w.warn("remove pod files", "error", err)
	}
}

func (w *worker) log(msg string, args ...any) { w.r.opts.Logger.Info(msg, w.named(args)...) }

func (w *worker) warn(msg string, args ...any) { w.r.opts.Logger.Warn(msg, w.named(args)...) }

// named adds which pod it is to the arguments of a line of the log.
func (w *worker) named(args []any) []any {
	return append([]any{"pod", w.id.Name, "namespace", w.id.Namespace, "uid", w.id.UID}, args...)
}
