// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
)

// mutantVariable is the environment variable that selects the mutant for TestMutant.
const mutantVariable = "CRITEST_MUTANT"

// mutants are runtimes that each violate one sentence of the documentation.
var mutants = map[string]struct {
	test   string // the case that detects the violation
	broken string // words of the violated sentence
	make   func(rt *critest.Runtime) cri.Runtime
}{
	"grace is truncated to seconds": {"container/stop_ignored", "rounds grace up", withFaults(func(f *critest.Faults) {
		f.StopContainerFunc = func(ctx context.Context, next cri.Runtime, id string, grace time.Duration) error {
			return next.StopContainer(ctx, id, grace.Truncate(time.Second))
		}
	})},
	"grace is ignored": {"container/stop$", "128+n if signal n", withFaults(func(f *critest.Faults) {
		f.StopContainerFunc = func(ctx context.Context, next cri.Runtime, id string, _ time.Duration) error {
			return next.StopContainer(ctx, id, 0)
		}
	})},
	"stop does not wait": {"container/stop_ignored", "rounds grace up", withFaults(func(f *critest.Faults) {
		f.StopContainerFunc = func(ctx context.Context, next cri.Runtime, id string, grace time.Duration) error {
			go func() { _ = next.StopContainer(ctx, id, grace) }()
			return nil
		}
	})},
	"stop ignores its context": {"container/stop_cut_short", "at a deadline", withFaults(func(f *critest.Faults) {
		f.StopContainerFunc = func(ctx context.Context, next cri.Runtime, id string, grace time.Duration) error {
			return next.StopContainer(context.WithoutCancel(ctx), id, grace)
		}
	})},
	"stop of a removed container fails": {"container/unknown", "has exited or does not exist", withFaults(func(f *critest.Faults) {
		f.StopContainerFunc = func(context.Context, cri.Runtime, string, time.Duration) error { return cri.ErrNotFound }
	})},
	"remove of a running container fails": {"container/remove_running", "by force if it runs", withFaults(func(f *critest.Faults) {
		f.RemoveContainerFunc = func(context.Context, cri.Runtime, string) error { return errors.New("it runs") }
	})},
	"second start succeeds": {"container/starts_once", "StartContainer starts a created", withFaults(func(f *critest.Faults) {
		f.StartContainerFunc = func(ctx context.Context, next cri.Runtime, id string) error {
			_ = next.StartContainer(ctx, id)
			return nil
		}
	})},
	"errors are not wrapped": {"container/unknown", "Every error is an", withFaults(func(f *critest.Faults) {
		f.StartContainerFunc = func(ctx context.Context, next cri.Runtime, id string) error {
			return errors.Unwrap(next.StartContainer(ctx, id))
		}
	})},
	"sandbox names are not reserved": {"sandbox/name", "another object has the name", withFaults(func(f *critest.Faults) {
		f.RunSandboxFunc = func(ctx context.Context, next cri.Runtime, c *cri.SandboxConfig) (string, error) {
			other := *c
			for {
				id, err := next.RunSandbox(ctx, &other)
				if !errors.Is(err, cri.ErrAlreadyExists) {
					return id, err
				}
				other.Attempt++
			}
		}
	})},
	"configs are changed": {"sandbox/lifecycle", "neither keeps nor changes", withFaults(func(f *critest.Faults) {
		f.RunSandboxFunc = func(ctx context.Context, next cri.Runtime, c *cri.SandboxConfig) (string, error) {
			c.Labels["mine"] = "now"
			return next.RunSandbox(ctx, c)
		}
	})},
	"calls are not concurrent": {"list/many_at_once", "may be called concurrently", withFaults(func(f *critest.Faults) {
		var busy atomic.Bool
		f.RunSandboxFunc = func(ctx context.Context, next cri.Runtime, c *cri.SandboxConfig) (string, error) {
			if !busy.CompareAndSwap(false, true) {
				return "", errors.New("busy")
			}
			defer busy.Store(false)
			time.Sleep(time.Second)
			return next.RunSandbox(ctx, c)
		}
	})},
	"exited containers are not listed": {"container/attempts", "including stopped ones", withList(func(s *cri.Snapshot) {
		var alive []cri.Container
		for _, c := range s.Containers {
			if c.State != cri.ContainerExited {
				alive = append(alive, c)
			}
		}
		s.Containers = alive
	})},
	"exit codes are lost": {"container/exit_codes", "valid in state ContainerExited", withList(func(s *cri.Snapshot) {
		for i := range s.Containers {
			s.Containers[i].ExitCode = 0
		}
	})},
	"labels are lost": {"list/fields", "List returns every", withList(func(s *cri.Snapshot) {
		for i := range s.Containers {
			s.Containers[i].Labels = nil
		}
	})},
	"Time of a list is late": {"list/fields", "Time is taken before", withList(func(s *cri.Snapshot) {
		s.Time = s.Time.Add(time.Second)
	})},
	"sandbox on the host has an address": {"sandbox/address", "none on the host", withList(func(s *cri.Snapshot) {
		for i := range s.Sandboxes {
			s.Sandboxes[i].IPs = []string{"10.0.0.1"}
		}
	})},
	"unknown pod is an error": {"list/pod", "returns a Pod without sandboxes", func(rt *critest.Runtime) cri.Runtime {
		return strictPodLister{rt}
	}},
	"deletions are not reported": {"events/order", "streams changes of containers", func(rt *critest.Runtime) cri.Runtime {
		return deafStreamer{rt}
	}},
	"stream ends with nil": {"events/end", "returns a non-nil error", func(rt *critest.Runtime) cri.Runtime {
		return silentStreamer{rt}
	}},
	"timeout is an outage": {"exec/timeout", "kills the command after timeout", func(rt *critest.Runtime) cri.Runtime {
		return brokenExecer{rt}
	}},
}

func withFaults(set func(*critest.Faults)) func(*critest.Runtime) cri.Runtime {
	return func(rt *critest.Runtime) cri.Runtime {
		f := &critest.Faults{Runtime: rt}
		set(f)
		return f
	}
}

func withList(change func(*cri.Snapshot)) func(*critest.Runtime) cri.Runtime {
	return withFaults(func(f *critest.Faults) {
		f.ListFunc = func(ctx context.Context, next cri.Runtime) (cri.Snapshot, error) {
			s, err := next.List(ctx)
			change(&s)
			return s, err
		}
	})
}

type strictPodLister struct{ *critest.Runtime }

func (r strictPodLister) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	p, err := r.Runtime.ListPod(ctx, uid)
	if err == nil && len(p.Sandboxes) == 0 {
		err = cri.ErrNotFound
	}
	return p, err
}

type deafStreamer struct{ *critest.Runtime }

func (r deafStreamer) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	return r.Runtime.StreamEvents(ctx, func(e cri.Event) error {
		if e.Type == cri.EventDeleted {
			return nil
		}
		return fn(e)
	})
}

type silentStreamer struct{ *critest.Runtime }

func (r silentStreamer) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	_ = r.Runtime.StreamEvents(ctx, fn)
	return nil
}

type brokenExecer struct{ *critest.Runtime }

func (r brokenExecer) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	res, err := r.Runtime.ExecSync(ctx, id, cmd, timeout)
	if err != nil {
		err = &cri.Error{Op: "ExecSync", ID: id, Err: cri.ErrUnavailable}
	}
	return res, err
}

// TestSuiteFindsFaults runs the suite for each mutant in a separate process, because it fails, and requires that the failure
// quotes the violated sentence.
func TestSuiteFindsFaults(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suitetest.FindsFault(t, mutantVariable, name, m.test, m.broken)
		})
	}
}

func TestMutant(t *testing.T) {
	m, ok := mutants[os.Getenv(mutantVariable)]
	if !ok {
		t.Skip("for TestSuiteFindsFaults")
	}
	critest.TestRuntime(t, critest.Fixture{
		New: func(*testing.T) cri.Runtime {
			return m.make(critest.New(critest.Options{Script: critest.SuiteScript}))
		},
		Run:             synctest.Test,
		IsolatedNetwork: true,
	})
}
