// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/script"
	"github.com/seed81659283/nodeagent/volume/plan"
)

// node plays a scenario: what is said of volumes, and at which times Plan is asked. What it returns is begun.
type node struct {
	t     *testing.T
	state plan.State
	begin time.Time
	now   time.Time
}

func TestScenarios(t *testing.T) {
	script.Run(t, "testdata/*.txt", func(t *testing.T, text string) string {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		n := &node{t: t, begin: start, now: start, state: plan.State{Parallel: 16, Slow: 10 * time.Second}}
		return script.Lines(text, ">", n.line)
	})
}

func (n *node) line(out *strings.Builder, words []string) {
	switch verb, args := words[0], words[1:]; verb {
	case "parallel":
		count, err := strconv.Atoi(args[0])
		require.NoError(n.t, err)
		n.state.Parallel = count
	case "at":
		n.at(out, args[0])
	default:
		for _, name := range args {
			n.say(verb, n.volume(name))
		}
	}
}

// say notes something about a volume.
func (n *node) say(verb string, v *plan.Volume) {
	switch verb {
	case "want":
		v.Desired = plan.Mounted
	case "release":
		v.Desired = plan.Unmounted
	case "found":
		v.Phase, v.Recovered = plan.Uncertain, true
	case "changed":
		v.Stale = true
		v.Retry()
	case "refresh":
		v.RefreshAt = n.now.Add(time.Minute)
	case "done":
		v.End(nil, n.now)
	case "fails":
		v.End(errors.New("failed"), n.now)
	case "final":
		v.End(fmt.Errorf("wrapped: %w", &plan.Final{Err: errors.New("failed")}), n.now)
	default:
		n.t.Fatalf("unknown verb %q", verb)
	}
}

// at asks for a plan and begins what is in it.
func (n *node) at(out *strings.Builder, text string) {
	d, err := time.ParseDuration(text)
	require.NoError(n.t, err)
	n.now = n.begin.Add(d)
	actions, wake := plan.Plan(&n.state, n.now)
	for _, a := range actions {
		a.Volume.Begin(a.Step, n.now)
		fmt.Fprintf(out, "> %s %s/%s\n", a.Step, a.Volume.Pod, a.Volume.Name)
	}
	switch {
	case !wake.IsZero():
		fmt.Fprintf(out, "> ask again at %v\n", wake.Sub(n.begin))
	case len(actions) == 0:
		out.WriteString("> nothing\n")
	}
}

// volume returns the volume of a name POD/VOLUME.
func (n *node) volume(name string) *plan.Volume {
	pod, rest, _ := strings.Cut(name, "/")
	for _, v := range n.state.Volumes {
		if v.Pod == pod && v.Name == rest {
			return v
		}
	}
	v := &plan.Volume{Pod: pod, Name: rest}
	n.state.Volumes = append(n.state.Volumes, v)
	return v
}

// Whatever is said in whatever order: a volume has one step at a time, no step is taken that nobody wants, the bound holds, and
// once all that was wanted succeeds everything is as it is desired.
func TestProperties(t *testing.T) {
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		s := plan.State{Parallel: 1 + r.IntN(4), Slow: 10 * time.Second}
		for i := range 6 {
			s.Volumes = append(s.Volumes, &plan.Volume{Pod: "p", Name: strconv.Itoa(i)})
		}
		for range 200 {
			now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			v := s.Volumes[r.IntN(len(s.Volumes))]
			switch r.IntN(6) {
			case 0:
				v.Desired = plan.Mounted
			case 1:
				v.Desired = plan.Unmounted
			case 2:
				v.Stale = true
			case 3, 4:
				if v.Step != plan.None {
					v.End([]error{nil, errors.New("x"), &plan.Final{Err: errors.New("x")}}[r.IntN(3)], now)
				}
			}
			step(t, &s, now)
		}
		settle(t, &s, now)
	}
}

// step begins what is due, and checks it.
func step(t *testing.T, s *plan.State, now time.Time) {
	t.Helper()
	actions, _ := plan.Plan(s, now)
	for _, a := range actions {
		require.Equal(t, plan.None, a.Volume.Step)
		if a.Step == plan.TearDown {
			require.Equal(t, plan.Unmounted, a.Volume.Desired)
		} else {
			require.Equal(t, plan.Mounted, a.Volume.Desired)
		}
		a.Volume.Begin(a.Step, now)
	}
	counted := 0
	for _, v := range s.Volumes {
		if v.Step != plan.None && now.Sub(v.Since) < s.Slow {
			counted++
		}
	}
	require.LessOrEqual(t, counted, s.Parallel)
}

// settle lets all steps succeed until there is nothing to do.
func settle(t *testing.T, s *plan.State, now time.Time) {
	t.Helper()
	for range 100 {
		for _, v := range s.Volumes {
			if v.Step != plan.None {
				v.End(nil, now)
			}
		}
		actions, wake := plan.Plan(s, now)
		if len(actions) == 0 && wake.IsZero() {
			break
		}
		for _, a := range actions {
			a.Volume.Begin(a.Step, now)
		}
		if !wake.IsZero() {
			now = wake
		}
	}
	for _, v := range s.Volumes {
		require.Equal(t, plan.None, v.Step)
		switch v.Desired {
		case plan.Mounted:
			require.Equal(t, plan.Ready, v.Phase)
		case plan.Unmounted:
			require.Equal(t, plan.Absent, v.Phase)
		}
	}
}

// idle returns a node that is at rest.
func idle(volumes int, now time.Time) *plan.State {
	s := &plan.State{Parallel: 16, Slow: 10 * time.Second}
	for i := range volumes {
		s.Volumes = append(s.Volumes, &plan.Volume{
			Pod: strconv.Itoa(i / 5), Name: strconv.Itoa(i % 5), Desired: plan.Mounted, Phase: plan.Ready, RefreshAt: now.Add(time.Minute),
		})
	}
	return s
}

func TestIdleAllocatesNothing(t *testing.T) {
	now := time.Now()
	s := idle(2500, now)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if actions, wake := plan.Plan(s, now); len(actions) > 0 || wake.IsZero() {
			t.Fatal("not idle")
		}
	}))
}

func BenchmarkIdle(b *testing.B) {
	now := time.Now()
	s := idle(2500, now)
	b.ReportAllocs()
	for b.Loop() {
		plan.Plan(s, now)
	}
}
