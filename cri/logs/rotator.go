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

// Log is the log file of a running container.
type Log struct {
	ContainerID string
	Path        string          // absolute
	Pod         cri.PodIdentity // of the container, for people; may be zero
	Container   string          // the name, for people; may be empty
}

// attrs returns what log lines say of a log.
func (l Log) attrs() []any {
	return []any{
		"namespace", l.Pod.Namespace, "pod", l.Pod.Name, "container", l.Container, "containerID", l.ContainerID, "path", l.Path,
	}
}

// RunningLogs returns the logs of the containers that run, for [Rotator.SetLogs]. One without a log has none.
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

// RotatorOptions configures a [Rotator]. The zero value is for production.
type RotatorOptions struct {
	// Policy is how much is kept. A zero field has its default.
	Policy Policy
	// Workers is how many logs are rotated at the same time. Zero means 4. Files are compressed one at a time.
	Workers int
	// ReopenTimeout is how long the runtime may take to open a log anew. Zero means 10 s.
	ReopenTimeout time.Duration
	// Logger gets what goes wrong, with the pod and the container that it is about. Nil discards.
	Logger *slog.Logger
	// Hooks are told what happens.
	Hooks Hooks
}

// Hooks are called by the goroutines of a log, with no lock held. A hook that blocks delays its log. Any may be nil.
type Hooks struct {
	// LogRotated is called when a log has been rotated, with the path and the size of the file it was renamed to.
	LogRotated func(l Log, path string, size int64)
	// FileCompressed is called when a rotated file has been compressed, with its new path and size.
	FileCompressed func(l Log, path string, size int64)
	// RotationFailed is called for each failed attempt, with the wait before the next; and once, with no log, when there are logs
	// and Run was not called within 8 s.
	RotationFailed func(l Log, err error, retry time.Duration)
}

// Rotator keeps the logs of running containers within a [Policy]. It does not touch the logs of containers that
// have ended: nothing is added to them.
type Rotator struct {
	runtime  cri.LogReopener
	o        RotatorOptions
	changed  chan struct{} // has an element when logs has changed
	rotating chan struct{} // has an element for each log that is being rotated
	packing  chan struct{} // has an element while a file is being compressed
	polls    bool          // logs are not watched
	guard    runonce.Guard
	watch    *fileWatch // nil: logs are polled; set by Run before it starts goroutines

	mu   sync.Mutex // guards what follows
	logs map[string]Log
}

// NewRotator returns a Rotator that asks runtime to reopen the files. It returns an error when the policy cannot be
// kept.
func NewRotator(runtime cri.LogReopener, o RotatorOptions) (*Rotator, error) {
	if err := required.Args("logs.NewRotator", required.Arg{Name: "runtime", Value: runtime, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	o.Policy = o.Policy.withDefaults()
	if o.Policy.MaxFiles < 2 {
		return nil, fmt.Errorf("MaxFiles %d: must be at least 2", o.Policy.MaxFiles)
	}
	if o.Workers <= 0 {
		o.Workers = 4
	}
	if o.ReopenTimeout <= 0 {
		o.ReopenTimeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Rotator{
		runtime:  runtime,
		o:        o,
		changed:  make(chan struct{}, 1),
		rotating: make(chan struct{}, o.Workers),
		packing:  make(chan struct{}, 1),
	}, nil
}

// SetLogs says which logs there are: those of all running containers. It may be called at any time, before Run too. What
// is no longer in the list is left alone.
func (r *Rotator) SetLogs(list []Log) {
	logs := make(map[string]Log, len(list))
	for _, l := range list {
		logs[l.Path] = l
	}
	if len(logs) > 0 {
		r.guard.Require("logs.Rotator", r.o.Logger, r.notRun)
	}
	r.mu.Lock()
	r.logs = logs
	r.mu.Unlock()
	sleep.Wake(r.changed)
}

// notRun calls Hooks.RotationFailed because no log is rotated.
func (r *Rotator) notRun(err error) {
	if hook := r.o.Hooks.RotationFailed; hook != nil {
		hook(Log{}, err, 0)
	}
}

// Run keeps the logs until ctx ends, and returns nil when all its goroutines have ended. A second call returns an error
// at once.
func (r *Rotator) Run(ctx context.Context) error {
	if err := r.guard.Begin(); err != nil {
		return fmt.Errorf("logs.Rotator: %w", err)
	}
	defer r.guard.End()
	if r.o.Policy.MaxSize < 0 {
		<-ctx.Done()
		return nil
	}
	var notices, keepers sync.WaitGroup
	if !r.polls {
		watch, err := openFileWatch()
		if err != nil {
			r.o.Logger.Warn("logs are polled", "error", err)
		} else {
			r.watch = watch
			notices.Go(func() { _ = watch.run() }) // ends with close, and without it there is the poll
			defer func() { watch.close(); notices.Wait() }()
		}
	}
	defer keepers.Wait()
	kept := make(map[string]*keeper)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
			r.update(ctx, kept, &keepers)
		}
	}
}

// update starts a keeper for each new log and ends those of logs that are no longer listed. A path has one at a
// time.
func (r *Rotator) update(ctx context.Context, kept map[string]*keeper, group *sync.WaitGroup) {
	r.mu.Lock()
	logs := r.logs // replaced by Set, never written to
	r.mu.Unlock()
	for path, k := range kept {
		if !k.ended && logs[path] == k.log {
			continue
		}
		k.ended = true
		k.cancel()
		select {
		case <-k.done:
			delete(kept, path)
		default: // a keeper that takes its place waits for it
		}
	}
	for path, l := range logs {
		before := kept[path]
		if before != nil && !before.ended {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		k := newKeeper(r, l, cancel)
		kept[path] = k
		group.Go(func() {
			if before != nil {
				<-before.done
			}
			k.run(ctx)
		})
	}
}
