// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/script"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// node executes a scenario: changes of volumes and devices, and calls of Plan at the given times. It starts the returned
// steps.
type node struct {
	t       *testing.T
	state   plan.State
	begin   time.Time
	now     time.Time
	givenUp map[string]plan.Step // steps that were given up, by volume or device
}

func TestPlanScenarios(t *testing.T) {
	script.Run(t, "testdata/*.txt", func(t *testing.T, text string) string {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		n := &node{t: t, begin: start, now: start, state: plan.State{Parallel: 16, Slow: 10 * time.Second}, givenUp: map[string]plan.Step{}}
		return script.Lines(text, ">", n.runLine)
	})
}

func (n *node) runLine(out *strings.Builder, words []string) {
	switch verb, args := words[0], words[1:]; verb {
	case "parallel":
		count, err := strconv.Atoi(args[0])
		require.NoError(n.t, err)
		n.state.Parallel = count
	case "at":
		n.runPlan(out, args[0])
	case "share": // a device, and the volumes on it
		for _, name := range args[1:] {
			n.volume(name).Device = n.device(args[0])
		}
	default:
		for _, name := range args {
			if strings.Contains(name, "/") {
				n.applyVerb(verb, n.volume(name))
			} else {
				n.applyDeviceVerb(verb, n.device(name))
			}
		}
	}
}

// failure returns the failure that a verb of a scenario stands for, or nil for a success.
func failure(verb string) *plan.Failure {
	switch verb {
	case "fails", "hangs":
		return &plan.Failure{}
	case "away":
		return &plan.Failure{Unavailable: true}
	case "final":
		return &plan.Failure{NothingLeft: true}
	case "outdated":
		return &plan.Failure{Usable: true}
	default:
		return nil
	}
}

// applyVerb applies a verb of a scenario to a volume.
func (n *node) applyVerb(verb string, v *plan.Volume) {
	name := v.Pod + "/" + v.Name
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
	case "done", "fails", "away", "final", "outdated":
		require.NotEqual(n.t, plan.None, v.Step, name)
		v.Complete(failure(verb), n.now)
	case "hangs":
		n.givenUp[name] = v.Step
		v.GiveUp(*failure(verb), n.now)
	case "returns":
		v.HungCallReturned(n.givenUp[name])
	default:
		n.t.Fatalf("unknown verb %q", verb)
	}
}

// applyDeviceVerb applies a verb of a scenario to a device.
func (n *node) applyDeviceVerb(verb string, d *plan.Device) {
	switch verb {
	case "found":
		d.Phase, d.Recovered = plan.Uncertain, true
	case "done", "fails", "final":
		require.NotEqual(n.t, plan.None, d.Step, d.Name)
		d.Complete(failure(verb), n.now)
	case "hangs":
		n.givenUp[d.Name] = d.Step
		d.GiveUp(*failure(verb), n.now)
	case "returns":
		d.HungCallReturned(n.givenUp[d.Name])
	default:
		n.t.Fatalf("unknown verb %q of a device", verb)
	}
}

// runPlan calls Plan and starts its actions.
func (n *node) runPlan(out *strings.Builder, text string) {
	d, err := time.ParseDuration(text)
	require.NoError(n.t, err)
	n.now = n.begin.Add(d)
	actions, wake := plan.Plan(&n.state, n.now)
	for _, a := range actions {
		a.Start(n.now)
		fmt.Fprintf(out, "> %s\n", describe(a))
	}
	switch {
	case !wake.IsZero():
		fmt.Fprintf(out, "> ask again at %v\n", wake.Sub(n.begin))
	case len(actions) == 0:
		out.WriteString("> nothing\n")
	}
}

func describe(a plan.Action) string {
	switch {
	case a.Device == nil:
		return fmt.Sprintf("%s %s/%s", a.Step, a.Volume.Pod, a.Volume.Name)
	case a.Volume == nil:
		return fmt.Sprintf("%s %s", a.Step, a.Device.Name)
	default:
		return fmt.Sprintf("%s %s for %s/%s", a.Step, a.Device.Name, a.Volume.Pod, a.Volume.Name)
	}
}

// volume returns the volume with the name POD/VOLUME.
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

// device returns the device with a name.
func (n *node) device(name string) *plan.Device {
	for _, d := range n.state.Devices {
		if d.Name == name {
			return d
		}
	}
	d := &plan.Device{Name: name}
	n.state.Devices = append(n.state.Devices, d)
	return d
}

// After any sequence of operations, a volume or a device has one step at a time. Only desired steps start, and only if the
// device permits them. The limit of concurrent steps holds. Once all steps succeed, each volume is in its desired state.
func TestRandomOperationsKeepInvariants(t *testing.T) {
	for seed := range 500 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		c := &randomNode{r: r, s: &plan.State{Parallel: 1 + r.IntN(4), Slow: 10 * time.Second}}
		for i := range 2 {
			c.s.Devices = append(c.s.Devices, &plan.Device{Name: strconv.Itoa(i)})
		}
		for i := range 8 {
			v := &plan.Volume{Pod: "p", Name: strconv.Itoa(i)}
			if d := r.IntN(3); d < 2 {
				v.Device = c.s.Devices[d]
			}
			c.s.Volumes = append(c.s.Volumes, v)
		}

		for range 300 {
			now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			c.applyRandomOperation(now)
			startDueSteps(t, c.s, now)
		}
		for _, call := range c.hungCalls {
			call()
		}
		completeAllSteps(t, c.s, now)
	}
}

// randomNode is a node on which random operations happen.
type randomNode struct {
	r         *rand.Rand
	s         *plan.State
	hungCalls []func() // return hung calls
}

func (c *randomNode) applyRandomOperation(now time.Time) {
	v := c.s.Volumes[c.r.IntN(len(c.s.Volumes))]
	d := c.s.Devices[c.r.IntN(len(c.s.Devices))]
	failures := []*plan.Failure{nil, {}, {NothingLeft: true}}
	switch c.r.IntN(10) {
	case 0:
		v.Desired = plan.Mounted
	case 1, 2:
		v.Desired = plan.Unmounted
	case 3:
		v.Stale = true
	case 4, 5, 6:
		if v.Step != plan.None {
			v.Complete(failures[c.r.IntN(3)], now)
		}
		if d.Step != plan.None {
			d.Complete(failures[c.r.IntN(3)], now)
		}
	case 7:
		if s := v.Step; s != plan.None {
			v.GiveUp(*failures[1], now)
			c.hungCalls = append(c.hungCalls, func() { v.HungCallReturned(s) })
		}
	case 8:
		if s := d.Step; s != plan.None {
			d.GiveUp(*failures[1], now)
			c.hungCalls = append(c.hungCalls, func() { d.HungCallReturned(s) })
		}
	case 9:
		if len(c.hungCalls) > 0 {
			c.hungCalls[0]()
			c.hungCalls = c.hungCalls[1:]
		}
	}
}

// startDueSteps starts the due steps and checks them.
func startDueSteps(t *testing.T, s *plan.State, now time.Time) {
	t.Helper()
	actions, _ := plan.Plan(s, now)
	for _, a := range actions {
		if a.Device != nil {
			require.Equal(t, plan.None, a.Device.Step)
		} else {
			require.Equal(t, plan.None, a.Volume.Step)
			require.Equal(t, a.Step == plan.TearDown, a.Volume.Desired == plan.Unmounted)
			require.False(t, a.Step != plan.TearDown && (a.Volume.HungSetUp || a.Volume.HungTearDown))
		}
		a.Start(now)
	}

	counted := 0
	count := func(p *plan.Progress) {
		if p.Step != plan.None && now.Sub(p.Since) < s.Slow {
			counted++
		}
	}
	for _, v := range s.Volumes {
		count(&v.Progress)
	}
	for _, d := range s.Devices {
		count(&d.Progress)
		requireExclusion(t, s, d)
	}
	require.LessOrEqual(t, counted, s.Parallel)
}

// requireExclusion checks that the running steps of d and its volumes may run concurrently.
func requireExclusion(t *testing.T, s *plan.State, d *plan.Device) {
	t.Helper()
	setUps, removes, there := 0, 0, 0
	for _, v := range s.Volumes {
		if v.Device != d {
			continue
		}
		switch v.Step {
		case plan.SetUp, plan.Remount:
			setUps++
		case plan.TearDown:
			removes++
		}
		if v.Phase != plan.Absent {
			there++
		}
	}

	if d.Step != plan.None {
		require.Zero(t, setUps+removes, "no step of a volume runs while a step of its device runs")
	}
	if d.Step == plan.Unstage {
		require.Zero(t, there, "a device is unstaged only without volumes on it")
	}
	require.LessOrEqual(t, setUps, 1)
	require.True(t, setUps == 0 || removes == 0 && d.Phase == plan.Ready, "a volume is set up only on a staged device, and not while another volume is torn down")
}

// completeAllSteps lets all steps succeed, and calls Plan until no step is due.
func completeAllSteps(t *testing.T, s *plan.State, now time.Time) {
	t.Helper()
	for range 200 {
		for _, v := range s.Volumes {
			if v.Step != plan.None {
				v.Complete(nil, now)
			}
		}
		for _, d := range s.Devices {
			if d.Step != plan.None {
				d.Complete(nil, now)
			}
		}
		actions, wake := plan.Plan(s, now)
		if len(actions) == 0 && wake.IsZero() {
			break
		}
		for _, a := range actions {
			a.Start(now)
		}
		if !wake.IsZero() {
			now = wake
		}
	}

	wanted := map[*plan.Device]bool{}
	for _, v := range s.Volumes {
		require.Equal(t, plan.None, v.Step)
		switch v.Desired {
		case plan.Mounted:
			require.Equal(t, plan.Ready, v.Phase)
			wanted[v.Device] = true
		case plan.Unmounted:
			require.Equal(t, plan.Absent, v.Phase)
		}
	}
	for _, d := range s.Devices {
		require.Equal(t, wanted[d], d.Phase == plan.Ready, "device %s is %v", d.Name, d.Phase)
		require.Equal(t, !wanted[d], d.Phase == plan.Absent, "device %s is %v", d.Name, d.Phase)
	}
}

// idleState returns the state of a node on which no step is due.
func idleState(volumes int, now time.Time) *plan.State {
	s := &plan.State{Parallel: 16, Slow: 10 * time.Second}
	for i := range volumes {
		var d *plan.Device
		if i%5 == 0 {
			d = &plan.Device{Name: strconv.Itoa(i), Progress: plan.Progress{Phase: plan.Ready}}
			s.Devices = append(s.Devices, d)
		}
		s.Volumes = append(s.Volumes, &plan.Volume{
			Pod: strconv.Itoa(i / 5), Name: strconv.Itoa(i % 5), Desired: plan.Mounted, RefreshAt: now.Add(time.Minute),
			Device: d, Progress: plan.Progress{Phase: plan.Ready},
		})
	}
	return s
}

func TestPlanOfIdleNodeAllocatesNothing(t *testing.T) {
	now := time.Now()
	s := idleState(2500, now)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if actions, wake := plan.Plan(s, now); len(actions) > 0 || wake.IsZero() {
			t.Fatal("not idle")
		}
	}))
}

func BenchmarkIdle(b *testing.B) {
	now := time.Now()
	s := idleState(2500, now)
	b.ReportAllocs()
	for b.Loop() {
		plan.Plan(s, now)
	}
}
