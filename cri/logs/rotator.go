// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Log describes the log of a running container.
type Log struct {
	ContainerID string
	Path        string          // absolute
	Pod         cri.PodIdentity // pod of the container, for log lines; may be zero
	Container   string          // name of the container, for log lines; may be empty
}

// logAttrs returns attributes for slog that identify the pod and the container of the log.
func (l Log) logAttrs() []any {
	return []any{
		"namespace", l.Pod.Namespace, "pod", l.Pod.Name, "container", l.Container, "containerID", l.ContainerID, "path", l.Path,
	}
}

// RunningLogs returns the logs of all running containers of pods, for [Rotator.SetLogs]. Containers without a log path are
// skipped.
func RunningLogs(pods []cri.Pod) (logs []Log) {
	for i := range pods {
		for _, c := range pods[i].Containers {
			if c.State == cri.ContainerRunning && c.LogPath != "" {
				logs = append(logs, Log{ContainerID: c.ID, Path: c.LogPath, Pod: pods[i].PodIdentity, Container: c.Name})
			}
		}
	}
	return logs
}

// RotatorOptions configures a [Rotator]. The zero value is ready for production.
type RotatorOptions struct {
	// Policy limits the files of each log. Zero fields have the defaults of the kubelet.
	Policy Policy
	// Workers is the maximum number of logs rotated at the same time. Zero means 4. Files are compressed one at a time.
	Workers int
	// ReopenTimeout limits the ReopenContainerLog call to the runtime. Zero means 10 s.
	ReopenTimeout time.Duration
	// Logger receives errors of rotation, with pod and container. Nil discards them.
	Logger *slog.Logger
	// Hooks are called after rotations, compressions and failures.
	Hooks Hooks
}

// Hooks run in the goroutines of a log, without locks. A hook that blocks delays its log. Each may be nil.
type Hooks struct {
	// LogRotated is called after a log was rotated, with the path and the size of the renamed file.
	LogRotated func(l Log, path string, size int64)
	// FileCompressed is called after a rotated file was compressed, with its new path and size.
	FileCompressed func(l Log, path string, size int64)
	// RotationFailed is called after each failed attempt, with the delay before the next. It is also called once with a zero Log
	// if logs are set but Run was not called within 8 s.
	RotationFailed func(l Log, err error, retry time.Duration)
}

// Rotator keeps the logs of running containers within a [Policy]. It ignores logs of exited containers, which no longer grow.
type Rotator struct {
	runtime       cri.LogReopener
	o             RotatorOptions
	changed       chan struct{} // capacity 1; has an element after logs has changed
	rotationSlots chan struct{} // has an element per log that is being rotated
	compressing   chan struct{} // has an element while a file is being compressed
	pollOnly      bool          // do not watch logs, for tests
	guard         runonce.Guard
	watch         *fileWatch // nil: logs are polled; set by Run before it starts goroutines

	mu   sync.Mutex // guards the fields below
	logs map[string]Log
}

// NewRotator returns a Rotator that calls runtime to reopen log files. It returns an error if runtime is nil or the policy is
// invalid.
func NewRotator(runtime cri.LogReopener, opts RotatorOptions) (*Rotator, error) {
	if err := required.Args("logs.NewRotator", required.Arg{Name: "runtime", Value: runtime, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	opts.Policy = opts.Policy.withDefaults()
	if opts.Policy.MaxFiles < 2 {
		return nil, fmt.Errorf("MaxFiles %d: must be at least 2", opts.Policy.MaxFiles)
	}
	if opts.Workers <= 0 {
		opts.Workers = 4
	}
	if opts.ReopenTimeout <= 0 {
		opts.ReopenTimeout = 10 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Rotator{
		runtime:       runtime,
		o:             opts,
		changed:       make(chan struct{}, 1),
		rotationSlots: make(chan struct{}, opts.Workers),
		compressing:   make(chan struct{}, 1),
	}, nil
}

// SetLogs replaces the list of logs to rotate, which must contain the logs of all running containers. Other logs are no
// longer rotated; their files remain. It may be called at any time, also before Run.
func (r *Rotator) SetLogs(list []Log) {
	logs := make(map[string]Log, len(list))
	for _, l := range list {
		logs[l.Path] = l
	}
	if len(logs) > 0 {
		r.guard.Require("logs.Rotator", r.o.Logger, r.reportNotRun)
	}
	r.mu.Lock()
	r.logs = logs
	r.mu.Unlock()
	sleep.Wake(r.changed)
}

// reportNotRun passes err to Hooks.RotationFailed. The error reports that SetLogs was called although Run was not called.
func (r *Rotator) reportNotRun(err error) {
	if hook := r.o.Hooks.RotationFailed; hook != nil {
		hook(Log{}, err, 0)
	}
}

// Run rotates the logs that SetLogs has set, until ctx ends. It returns nil when all its goroutines have exited. A second
// call returns an error at once.
func (r *Rotator) Run(ctx context.Context) error {
	if err := r.guard.Begin(); err != nil {
		return fmt.Errorf("logs.Rotator: %w", err)
	}
	defer r.guard.End()
	if r.o.Policy.MaxSize < 0 {
		<-ctx.Done()
		return nil
	}
	var notices, running sync.WaitGroup
	if !r.pollOnly {
		watch, err := openFileWatch()
		if err != nil {
			r.o.Logger.Warn("logs are polled", "error", err)
		} else {
			r.watch = watch
			notices.Go(func() { _ = watch.readEvents() }) // ends with closeQueue; without it logs are polled
			defer func() { watch.closeQueue(); notices.Wait() }()
		}
	}
	defer running.Wait()
	keepers := make(map[string]*logKeeper)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
			r.updateKeepers(ctx, keepers, &running)
		}
	}
}

// updateKeepers starts a logKeeper for each new log, as a goroutine of group, and stops the keepers of other logs.
func (r *Rotator) updateKeepers(ctx context.Context, keepers map[string]*logKeeper, group *sync.WaitGroup) {
	r.mu.Lock()
	logs := r.logs // SetLogs replaces the map and never modifies it
	r.mu.Unlock()
	for path, k := range keepers {
		if !k.stopped && logs[path] == k.log {
			continue
		}
		k.stopped = true
		k.cancel()
		select {
		case <-k.done:
			delete(keepers, path)
		default: // the next keeper of this path waits for it
		}
	}
	for path, l := range logs {
		// a path never has two running keepers
		previous := keepers[path]
		if previous != nil && !previous.stopped {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		k := newLogKeeper(r, l, cancel)
		keepers[path] = k
		group.Go(func() {
			if previous != nil {
				<-previous.done
			}
			k.run(ctx)
		})
	}
}
