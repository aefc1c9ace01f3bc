// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/script"
	"github.com/seed81659283/nodeagent/probe"
)

// TestStateScenarios runs testdata/state/*.txt. The indented line below a command is its result: the value of the probe and
// the time of the next probe. Commands:
//
//	probe KIND KEY=VALUE...                       delay=10s period=10s success=1 failure=3 first=TIME; a new probe
//	spec KEY=VALUE...                             change the spec
//	agent TIME [OUTCOME]                          a new agent starts, with this stored outcome
//	TIME container ID STATE [at=TIME] FLAG...     STATE waiting, running or terminated (waiting and terminated are one); FLAG started, terminating
//	TIME no container
//	TIME ask OUTCOME                              or "error": the prober returns an error
//	TIME begin, TIME answer OUTCOME               ask in two steps
//	TIME trigger
func TestStateScenarios(t *testing.T) { script.Run(t, "testdata/state/*.txt", runScenario) }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// scenario is a probe with its container and agent.
type scenario struct {
	t      *testing.T
	state  probe.State
	target probe.Target
	past   probe.PreviousRun
}

// runScenario runs a scenario and returns it with its results.
func runScenario(t *testing.T, text string) string {
	s := &scenario{t: t}
	return script.Lines(text, "  ", func(out *strings.Builder, f []string) {
		switch f[0] {
		case "probe":
			s.setProbe(f[1], f[2:])
		case "spec":
			s.setSpec(f[1:])
		case "agent":
			s.past = probe.PreviousRun{AgentStart: s.parseTime(f[1])}
			if len(f) > 2 {
				s.past.Outcome = s.parseOutcome(f[2])
			}
			s.state = probe.NewState(s.past.AgentStart)
		default:
			s.runStep(out, s.parseTime(f[0]), f[1], f[2:])
			s.writeState(out)
		}
	})
}

func (s *scenario) setProbe(kind string, args []string) {
	s.target = probe.Target{Key: probe.Key{PodUID: "u1", Container: "web"}, Prober: probe.Func(nil)}
	s.target.Spec.Period = 10 * time.Second
	for s.target.Kind.String() != kind {
		s.target.Kind++
		require.LessOrEqual(s.t, s.target.Kind, probe.Liveness)
	}
	s.past = probe.PreviousRun{AgentStart: epoch.Add(-time.Hour)}
	s.state = probe.NewState(epoch)
	s.setSpec(args)
}

func (s *scenario) setSpec(args []string) {
	for _, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "delay":
			s.target.Spec.InitialDelay = s.parseDuration(v)
		case "period":
			s.target.Spec.Period = s.parseDuration(v)
		case "success":
			s.target.Spec.SuccessThreshold = s.parseNumber(v)
		case "failure":
			s.target.Spec.FailureThreshold = s.parseNumber(v)
		case "first":
			s.state = probe.NewState(s.parseTime(v))
		default:
			s.t.Fatalf("spec: unknown %q", arg)
		}
	}
}

func (s *scenario) runStep(out *strings.Builder, now time.Time, what string, args []string) {
	switch what {
	case "no":
		s.target.ContainerID, s.target.Running, s.target.Started = "", false, false
		s.state = s.state.UpdateTarget(s.target, s.past, now)
	case "container":
		s.setContainer(args[0], args[1:], now)
		s.state = s.state.UpdateTarget(s.target, s.past, now)
	case "ask":
		if due := s.state.NextProbe(); due.IsZero() || due.After(now) {
			fmt.Fprintln(out, "  not due")
			return
		}
		s.state = s.state.StartProbe(now)
		if args[0] != "error" {
			s.state = s.state.AddResult(s.parseOutcome(args[0]))
		}
	case "begin":
		s.state = s.state.StartProbe(now)
	case "answer":
		s.state = s.state.AddResult(s.parseOutcome(args[0]))
	case "trigger":
		s.state = s.state.Trigger(now)
	default:
		s.t.Fatalf("unknown line %q", what)
	}
}

func (s *scenario) setContainer(id string, args []string, now time.Time) {
	t := &s.target
	if id != t.ContainerID {
		t.StartedAt = now
	}
	t.ContainerID, t.Running, t.Started, t.Terminating = id, false, false, false
	for _, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "waiting", "terminated":
		case "running":
			t.Running = true
		case "started":
			t.Started = true
		case "terminating":
			t.Terminating = true
		case "at":
			t.StartedAt = s.parseTime(v)
		default:
			s.t.Fatalf("container: unknown %q", arg)
		}
	}
}

func (s *scenario) writeState(out *strings.Builder) {
	text := "nothing to say"
	if v, ok := s.state.Value(); ok {
		text = v.ContainerID + " " + v.Outcome.String()
	}
	if due := s.state.NextProbe(); due.IsZero() {
		text += ", not asked"
	} else {
		text += ", next " + due.Sub(epoch).String()
	}
	fmt.Fprintln(out, "  "+text)
}

func (s *scenario) parseOutcome(v string) probe.Outcome {
	for o := probe.Unknown; o <= probe.Failure; o++ {
		if o.String() == v {
			return o
		}
	}
	s.t.Fatalf("no outcome %q", v)
	return 0
}

func (s *scenario) parseTime(v string) time.Time { return epoch.Add(s.parseDuration(v)) }

func (s *scenario) parseDuration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	require.NoError(s.t, err)
	return d
}

func (s *scenario) parseNumber(v string) int {
	n, err := strconv.Atoi(v)
	require.NoError(s.t, err)
	return n
}
