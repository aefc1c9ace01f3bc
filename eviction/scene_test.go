// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestScripts runs the scripts in testdata, which explain their format.
func TestScripts(t *testing.T) {
	script.Run(t, "testdata/*.txtar", func(t *testing.T, text string) string {
		s := &scene{t: t, started: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), readings: map[eviction.Signal]eviction.Reading{}}
		return script.Lines(text, ">", s.do)
	})
}

// scene is a running script.
type scene struct {
	t        *testing.T
	started  time.Time
	rules    eviction.Rules
	layout   eviction.Layout
	readings map[eviction.Signal]eviction.Reading
	pods     []eviction.Candidate
	state    eviction.State
	now      time.Time
	reclaim  *eviction.Reclaim
}

func (s *scene) do(out *strings.Builder, words []string) {
	switch command, args := words[0], words[1:]; command {
	case "threshold":
		s.threshold(args)
	case "rules":
		s.setRules(args)
	case "layout":
		s.layout = map[string]eviction.Layout{"single": eviction.SingleFS, "dedicated": eviction.DedicatedImageFS, "split": eviction.SplitFS}[args[0]]
	case "pod":
		s.pod(args)
	case "gone":
		s.state = s.state.Evicted(args[0])
		s.remove(args[0])
	case "terminated": // the pod is only omitted from the candidates
		s.remove(args[0])
	case "killed":
		s.state = eviction.Unblock(s.state, args[0], s.now.Add(5*time.Minute))
	case "failed":
		s.state = eviction.Unblock(s.state, args[0], s.now.Add(10*time.Second))
	case "restart":
		s.state, s.reclaim = eviction.State{}, nil
	case "reclaimed":
		require.NotNil(s.t, s.reclaim, "a reclaim must have been decided")
		s.state = s.state.Reclaimed(*s.reclaim, s.amount(args[0]), s.now)
	case "at":
		s.at(out, args)
	default:
		s.t.Fatalf("unknown command %q", command)
	}
}

// threshold parses: SIGNAL<VALUE [soft=GRACE] [min=VALUE].
func (s *scene) threshold(args []string) {
	signal, text, _ := strings.Cut(args[0], "<")
	value, err := eviction.ParseAmount(text)
	require.NoError(s.t, err)
	th := eviction.Threshold{Signal: eviction.Signal(signal), Value: value}
	for _, arg := range args[1:] {
		switch key, text, _ := strings.Cut(arg, "="); key {
		case "soft":
			th.GracePeriod = s.duration(text)
		case "min":
			th.MinReclaim, err = eviction.ParseReclaim(text)
			require.NoError(s.t, err)
		}
	}
	s.rules.Thresholds = append(s.rules.Thresholds, th)
}

func (s *scene) setRules(args []string) {
	for _, arg := range args {
		switch key, text, _ := strings.Cut(arg, "="); key {
		case "kubelet":
			s.rules = s.rules.Kubelet()
		case "maxgrace":
			s.rules.MaxGracePeriod = s.duration(text)
		case "transition":
			s.rules.TransitionPeriod = s.duration(text)
		case "nolocal":
			s.rules.NoLocalStorage = true
		case "ignoreswap":
			s.rules.IgnoreSwap = true
		case "nocache":
			s.rules.NoCache = true
		default:
			s.t.Fatalf("unknown rule %q", arg)
		}
	}
}

// pod parses: UID [KEY=VALUE...]. It replaces an existing pod.
func (s *scene) pod(args []string) {
	c := eviction.Candidate{UID: args[0], Name: "default/" + args[0], Measured: true}
	for _, arg := range args[1:] {
		key, text, _ := strings.Cut(arg, "=")
		switch key {
		case "priority":
			n, err := strconv.Atoi(text)
			require.NoError(s.t, err)
			c.Priority = int32(n)
		case "critical":
			c.Critical = true
		case "evicting":
			c.Evicting = true
		case "unmeasured":
			c.Measured = false
		case "grace":
			c.GracePeriod, c.HasGracePeriod = s.duration(text), true
		case "exceeds":
			c.ExceededLimit = &eviction.ExceededLimit{Signal: eviction.Signal(text), Message: "Usage exceeds the limit. "}
		default:
			numbers := map[string]*int64{
				"usage": &c.Memory, "swap": &c.Swap, "request": &c.MemoryRequest, "tasks": &c.Tasks, "rootfs": &c.Rootfs.Bytes,
				"logs": &c.Logs.Bytes, "volumes": &c.Volumes.Bytes, "inodes": &c.Rootfs.Inodes, "storage": &c.StorageRequest,
			}
			require.Contains(s.t, numbers, key)
			*numbers[key] = s.amount(text)
		}
	}
	s.remove(c.UID)
	s.pods = append(s.pods, c)
}

func (s *scene) remove(uid string) {
	var kept []eviction.Candidate
	for _, c := range s.pods {
		if c.UID != uid {
			kept = append(kept, c)
		}
	}
	s.pods = kept
}

// at parses: TIME [SIGNAL=AVAILABLE/CAPACITY[@MEASURED][~RECLAIMABLE] or SIGNAL=none]... Readings stay until they are replaced.
func (s *scene) at(out *strings.Builder, args []string) {
	s.now = s.started.Add(s.duration(args[0]))
	for _, arg := range args[1:] {
		name, text, _ := strings.Cut(arg, "=")
		signal := eviction.Signal(name)
		if text == "none" {
			delete(s.readings, signal)
			continue
		}
		r := eviction.Reading{Signal: signal}
		text, reclaimable, _ := strings.Cut(text, "~")
		text, measured, _ := strings.Cut(text, "@")
		available, capacity, _ := strings.Cut(text, "/")
		r.Available, r.Capacity = s.amount(available), s.amount(capacity)
		if reclaimable != "" {
			r.Reclaimable = s.amount(reclaimable)
		}
		if measured != "" {
			r.Time = s.started.Add(s.duration(measured))
		}
		s.readings[signal] = r
	}
	s.decide(out)
}

func (s *scene) decide(out *strings.Builder) {
	p, err := eviction.NewPolicy(s.rules)
	require.NoError(s.t, err)
	o := eviction.Observation{Layout: s.layout}
	for _, name := range slices.Sorted(maps.Keys(s.readings)) {
		o.Readings = append(o.Readings, s.readings[name])
	}
	d := p.Decide(s.state, o, s.now)
	measured := d.NeedsCandidates
	if d.NeedsCandidates {
		require.Equal(s.t, s.state, d.State)
		o.Candidates, o.Measured = s.pods, true
		d = p.Decide(s.state, o, s.now)
		require.False(s.t, d.NeedsCandidates)
	}
	s.state = d.State
	line := []string{"wake " + d.Wake.Sub(s.now).Round(time.Millisecond).String()}
	if measured {
		line = append(line, "pods measured")
	}
	for _, c := range d.Conditions {
		line = append(line, string(c))
	}
	fmt.Fprintln(out, ">", strings.Join(line, ", "))
	for _, problem := range d.Problems {
		fmt.Fprintln(out, ">", problem)
	}
	if d.Reclaim != nil {
		s.reclaim = d.Reclaim
		fmt.Fprintf(out, "> reclaim %s for %s, want %d\n", kinds(d.Reclaim.Kind), d.Reclaim.Signal, d.Reclaim.Missing)
	}
	for _, uid := range d.Kill {
		fmt.Fprintln(out, "> kill", uid)
	}
	for _, e := range d.Evict {
		urgent := ""
		if e.Urgent {
			urgent = ", urgent"
		}
		fmt.Fprintf(out, "> evict %s for %s, grace %s%s: %q\n", e.UID, e.Signal, e.Grace, urgent, e.Message)
	}
}

func kinds(k eviction.ReclaimKind) string {
	var names []string
	for i, name := range []string{"cache", "containers", "images"} {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

func (s *scene) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}

// amount parses text, a quantity that may be negative.
func (s *scene) amount(text string) int64 {
	number, negative := strings.CutPrefix(text, "-")
	v, err := eviction.ParseReclaim(number)
	require.NoError(s.t, err, text)
	if negative {
		return -v.Absolute
	}
	return v.Absolute
}
