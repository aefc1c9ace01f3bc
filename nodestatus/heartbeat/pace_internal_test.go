// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/nodestatus"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// A status that does not change is sent after half to one and a half of the period, and then in every period.
func TestReportPeriod(t *testing.T) {
	const m = time.Minute
	for _, test := range []struct {
		random float64
		want   time.Duration
	}{{0, 150 * time.Second}, {0.5, 5 * m}, {0.999, 449700 * time.Millisecond}} {
		p := pace{period: 10 * time.Second, report: 5 * m, random: func() float64 { return test.random }}
		require.True(t, p.expired(noon), "nothing was sent yet")
		p.sending(false)
		p.sent(noon)
		assert.False(t, p.expired(noon.Add(test.want-time.Millisecond)), test.random)
		require.True(t, p.expired(noon.Add(test.want)), test.random)
		p.sending(false)
		p.sent(noon)
		assert.False(t, p.expired(noon.Add(5*m-1)), "it was at random already")
		require.True(t, p.expired(noon.Add(5*m)))
		p.sending(true)
		p.sent(noon)
		assert.True(t, p.expired(noon.Add(test.want)), "a change is a new beginning")
	}
}

func TestLooks(t *testing.T) {
	p := pace{period: 10 * time.Second, report: time.Minute, random: func() float64 { return 1 }}
	p.begin(noon)
	look, whole := p.due(noon)
	require.True(t, look && whole)
	p.looked(noon, true)
	require.Equal(t, noon.Add(fastPeriod), p.next(false))
	look, whole = p.due(noon.Add(fastPeriod))
	require.True(t, look && !whole)
	p.ready()
	require.Equal(t, noon.Add(10400*time.Millisecond), p.next(false))

	p.ask()
	_, whole = p.due(noon.Add(time.Second))
	require.True(t, whole, "at once, the first time")
	p.looking(noon.Add(time.Second))
	p.ask()
	look, _ = p.due(noon.Add(1500 * time.Millisecond))
	require.False(t, look)
	require.Equal(t, noon.Add(2*time.Second), p.next(false))

	p = pace{period: 10 * time.Second, random: func() float64 { return 0 }}
	p.begin(noon)
	late := noon.Add(fastTimeout)
	p.looked(late, false)
	assert.True(t, p.fastUntil.IsZero(), "a node that does not become ready is no longer looked at all the time")
}

func TestDecide(t *testing.T) {
	at := func(change func(*situation)) request {
		s := situation{phase: registered, look: whole, mayRegister: true, mayConfirm: true, synced: true, present: true}
		change(&s)
		return s.decide()
	}
	for name, test := range map[string]struct {
		change func(*situation)
		want   request
	}{
		"nothing new":                        {func(*situation) {}, nothing},
		"changed":                            {func(s *situation) { s.changed = true }, report},
		"changed, and it was not time":       {func(s *situation) { s.changed, s.look = true, quick }, nothing},
		"changed by somebody":                {func(s *situation) { s.changed, s.look = true, glance }, nothing},
		"changed, with a request under way":  {func(s *situation) { s.changed, s.busy = true, true }, nothing},
		"expired":                            {func(s *situation) { s.expired = true }, report},
		"first ready":                        {func(s *situation) { s.turnReady, s.fast, s.look = true, true, quick }, report},
		"ready again":                        {func(s *situation) { s.turnReady, s.look = true, quick }, nothing},
		"not in the watch":                   {func(s *situation) { s.present, s.changed = false, true }, confirm},
		"not in the watch, just asked":       {func(s *situation) { s.present, s.changed, s.mayConfirm = false, true, false }, report},
		"no watch yet":                       {func(s *situation) { s.present, s.synced = false, false }, nothing},
		"not registered":                     {func(s *situation) { s.phase = registering }, register},
		"not registered, in a back-off":      {func(s *situation) { s.phase, s.mayRegister = registering, false }, nothing},
		"deleted":                            {func(s *situation) { s.phase, s.present, s.changed = deleted, false, true }, nothing},
		"deleted, in a watch that is behind": {func(s *situation) { s.phase, s.mayConfirm = deleted, false }, nothing},
		"deleted, and made again":            {func(s *situation) { s.phase, s.other, s.mayConfirm = deleted, true, false }, confirm},
		"deleted, and back from a backup":    {func(s *situation) { s.phase = deleted }, confirm},
	} {
		assert.Equal(t, test.want, at(test.change), name)
	}
}

func TestFrequencies(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, test := range []struct{ update, report, wantUpdate, wantReport time.Duration }{
		{0, 0, 10 * s, 5 * m}, {10 * s, 0, 10 * s, 10 * s}, {m, 0, m, m}, {0, 2 * m, 10 * s, 2 * m}, {m, 2 * m, m, 2 * m},
	} {
		r, err := NewReporter(&rest.Config{Host: "http://localhost"}, ReporterOptions{
			Config: nodestatus.Config{Name: "n"}, UpdateFrequency: test.update, ReportFrequency: test.report,
		})
		require.NoError(t, err)
		assert.Equal(t, test.wantUpdate, r.opts.UpdateFrequency)
		assert.Equal(t, test.wantReport, r.opts.ReportFrequency)
	}
}
