// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/script"
	"github.com/seed81659283/nodeagent/pleg"
)

// TestScenarios runs the scripts in testdata/*.txtar, each section with a fake runtime and a clock of its own. A line that
// starts with ">" is a result of the line above it: the time since the start, then a call to the runtime, events
// passed to the sink, or a returned value. testdata/README explains the commands.
func TestScenarios(t *testing.T) {
	script.Run(t, "testdata/*.txtar", func(t *testing.T, text string) (got string) {
		synctest.Test(t, func(t *testing.T) { got = runScenario(t, text) })
		return got
	})
}

// scenario is a running scenario.
type scenario struct {
	*fakeRuntime
	t     *testing.T
	ctx   context.Context
	start time.Time
	wg    sync.WaitGroup
	gen   *pleg.Generator
	caps  []string
	opts  pleg.Options

	logMu sync.Mutex // guards lines
	lines []line
}

// line is one line of output. The lines of one instant have no order between pods, so they are sorted: calls, events, then
// results.
type line struct {
	at   time.Duration
	kind int
	key  string
	text string
}

const (
	aCall = iota
	anEvent
	anAnswer
)

func (s *scenario) log(kind int, key, format string, args ...any) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	s.lines = append(s.lines, line{time.Since(s.start), kind, key, fmt.Sprintf(format, args...)})
}

func (s *scenario) flush(out *strings.Builder) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	slices.SortStableFunc(s.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.key, b.key))
	})
	for _, l := range s.lines {
		fmt.Fprintf(out, "> %v %s\n", l.at, l.text)
	}
	s.lines = nil
}

// runScenario returns the script with the output of each line.
func runScenario(t *testing.T, text string) string {
	ctx, cancel := context.WithCancel(t.Context())
	s := &scenario{fakeRuntime: newFakeRuntime(), t: t, ctx: ctx, start: time.Now()}
	s.opts.Rand = func() float64 { return 0.5 }
	s.opts.Sink = func(events []pleg.Event) {
		texts := make([]string, 0, len(events))
		for _, e := range events {
			texts = append(texts, e.String())
		}
		s.log(anEvent, events[0].PodUID, "%s", strings.Join(texts, ", "))
	}
	result := script.Lines(text, ">", func(out *strings.Builder, words []string) {
		require.NoError(t, s.runCommand(words[0], words[1:]), words)
		synctest.Wait()
		s.flush(out)
	})
	cancel()
	s.wg.Wait()
	return result
}

// runCommand runs one command of the script.
func (s *scenario) runCommand(cmd string, args []string) error {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch cmd {
	case "runtime":
		s.caps = args
	case "calls":
		s.called = func(call, id string) { s.log(aCall, call+id, "%s", strings.TrimSpace(call+" "+id)) }
	case "run":
		s.run()
	case "set":
		return s.setObject(args)
	case "drop":
		s.removeObject(arg(0))
	case "event":
		return s.sendEvent(args)
	case "stream":
		s.setStreamError(map[string]error{
			"down": cri.ErrUnavailable, "unsupported": errors.ErrUnsupported, "up": nil,
		}[arg(0)])
	case "wait":
		d, err := time.ParseDuration(arg(0))
		time.Sleep(d)
		return err
	case "fail":
		s.setFault(strings.Join(args, " "), func(context.Context) error { return errors.New("boom") })
	case "large":
		s.setFault(strings.Join(args, " "), func(context.Context) error { return cri.ErrTooLarge })
	case "hang":
		s.setFault(strings.Join(args, " "), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	case "delay":
		d, err := time.ParseDuration(arg(0))
		s.setFault(strings.Join(args[1:], " "), func(context.Context) error { time.Sleep(d); return nil })
		return err
	case "heal":
		s.setFault(strings.Join(args, " "), nil)
	default:
		return s.runQuery(cmd, arg(0), arg(1))
	}
	return nil
}

// runQuery runs a command that calls the generator.
func (s *scenario) runQuery(cmd, uid, when string) error {
	switch cmd {
	case "relist":
		s.gen.Relist(uid)
	case "reinspect":
		s.gen.Reinspect(uid)
	case "get":
		p, err := s.gen.Get(uid)
		s.log(anAnswer, uid, "%s", s.formatPod(p, err))
	case "newer":
		than := time.Now()
		if when == "zero" {
			than = time.Time{}
		}
		s.wg.Go(func() {
			p, err := s.gen.NewerThan(s.ctx, uid, than)
			if s.ctx.Err() == nil {
				s.log(anAnswer, uid, "newer: %s", s.formatPod(p, err))
			}
		})
	case "pods":
		var all []string
		pods, err := s.gen.Pods()
		for _, p := range pods {
			all = append(all, s.formatPod(p, nil))
		}
		if err != nil {
			all = append(all, "perhaps others: "+err.Error())
		}
		s.log(anAnswer, "", "%s", strings.Join(all, "; "))
	case "healthy":
		s.log(anAnswer, "", "healthy: %v", s.gen.Healthy())
	case "trouble":
		for _, e := range s.gen.Status().Pods {
			s.log(anAnswer, e.PodUID, "%s %s since %v: %v", e.PodUID, e.Call, e.Since.Sub(s.start), e.Err)
		}
	case "streaming":
		s.log(anAnswer, "", "streaming: %v", s.gen.Status().Streaming)
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

func (s *scenario) run() {
	has := func(c string) bool { return slices.Contains(s.caps, c) }
	s.gen = pleg.New(s.withInterfaces(has("inspector"), has("podlister"), has("events")), s.opts)
	s.wg.Go(func() {
		if err := s.gen.Run(s.ctx); err != nil {
			s.t.Error("Run:", err)
		}
	})
}

// setObject runs "set POD sandbox|container ID STATE [IP|EXITCODE]".
func (s *scenario) setObject(a []string) error {
	if a[1] == "sandbox" {
		sb := cri.Sandbox{ID: a[2], Pod: cri.PodIdentity{UID: a[0], Name: "pod-" + a[0]}}
		if a[3] != "ready" {
			sb.State = cri.SandboxNotReady
		}
		if len(a) > 4 {
			sb.IPs = a[4:]
		}
		s.putSandbox(sb)
		return nil
	}
	states := []string{"created", "running", "exited", "unknown"}
	c := cri.Container{ID: a[2], PodUID: a[0], State: cri.ContainerState(slices.Index(states, a[3]))}
	if len(a) > 4 {
		code, err := strconv.Atoi(a[4])
		if err != nil {
			return err
		}
		c.ExitCode = int32(code)
	}
	s.putContainer(c)
	return nil
}

// sendEvent runs "event POD ID TYPE [AGO]"; POD is "-" for an event without a pod.
func (s *scenario) sendEvent(a []string) error {
	types := []string{"created", "started", "stopped", "deleted"}
	e := cri.Event{ID: a[1], Type: cri.EventType(slices.Index(types, a[2])), Time: time.Now()}
	if a[0] != "-" {
		e.Pod.UID = a[0]
	}
	if len(a) > 3 {
		ago, err := time.ParseDuration(a[3])
		if err != nil {
			return err
		}
		e.Time = e.Time.Add(-ago)
	}
	if s.emitEvent(e) == 0 {
		s.log(anAnswer, "", "the event is lost")
	}
	return nil
}

// formatPod returns a pod in one line.
func (s *scenario) formatPod(p cri.Pod, err error) string {
	parts := []string{p.UID}
	for _, sb := range p.Sandboxes {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %v %s", sb.ID, sb.State, strings.Join(sb.IPs, " "))))
	}
	for _, c := range p.Containers {
		text := fmt.Sprintf("%s %v", c.ID, c.State)
		if c.State == cri.ContainerExited {
			text += fmt.Sprintf(" %d", c.ExitCode)
		}
		parts = append(parts, text)
	}
	at := "never seen"
	if !p.Time.IsZero() {
		at = "as of " + p.Time.Sub(s.start).String()
	}
	text := strings.Join(parts, " | ") + " (" + at + ")"
	if err != nil {
		text += " error: " + err.Error()
	}
	return text
}
