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

// An unchanged status is reported after half to one and a half report periods, and then once per period.
func TestUnchangedStatusIsReportedEveryPeriod(t *testing.T) {
	const m = time.Minute
	for _, test := range []struct {
		random float64
		want   time.Duration
	}{{0, 150 * time.Second}, {0.5, 5 * m}, {0.999, 449700 * time.Millisecond}} {
		p := schedule{updatePeriod: 10 * time.Second, reportPeriod: 5 * m, random: func() float64 { return test.random }}
		require.True(t, p.reportDue(noon), "the first report is due at once")
		p.reportStarted(false)
		p.reportAccepted(noon)
		assert.False(t, p.reportDue(noon.Add(test.want-time.Millisecond)), test.random)
		require.True(t, p.reportDue(noon.Add(test.want)), test.random)
		p.reportStarted(false)
		p.reportAccepted(noon)
		assert.False(t, p.reportDue(noon.Add(5*m-1)), "later reports have no jitter")
		require.True(t, p.reportDue(noon.Add(5*m)))
		p.reportStarted(true)
		p.reportAccepted(noon)
		assert.True(t, p.reportDue(noon.Add(test.want)), "a report of a change starts a new period with jitter")
	}
}

func TestScheduleOfUpdates(t *testing.T) {
	p := schedule{updatePeriod: 10 * time.Second, reportPeriod: time.Minute, random: func() float64 { return 1 }}
	p.start(noon)
	look, whole := p.updateDue(noon)
	require.True(t, look && whole)
	p.updateCompleted(noon, true)
	require.Equal(t, noon.Add(fastPeriod), p.nextWake(false))
	look, whole = p.updateDue(noon.Add(fastPeriod))
	require.True(t, look && !whole)
	p.stopFastUpdates()
	require.Equal(t, noon.Add(10400*time.Millisecond), p.nextWake(false))

	p.requestUpdate()
	_, whole = p.updateDue(noon.Add(time.Second))
	require.True(t, whole, "the first requested update is due at once")
	p.updateStarted(noon.Add(time.Second))
	p.requestUpdate()
	look, _ = p.updateDue(noon.Add(1500 * time.Millisecond))
	require.False(t, look)
	require.Equal(t, noon.Add(2*time.Second), p.nextWake(false))

	p = schedule{updatePeriod: 10 * time.Second, random: func() float64 { return 0 }}
	p.start(noon)
	late := noon.Add(fastTimeout)
	p.updateCompleted(late, false)
	assert.True(t, p.fastUntil.IsZero(), "fast updates stop at their timeout although the node is not ready")
}

func TestChooseRequest(t *testing.T) {
	at := func(change func(*requestInput)) request {
		s := requestInput{phase: registered, update: fullUpdate, canRegister: true, canConfirm: true, synced: true, present: true}
		change(&s)
		return s.chooseRequest()
	}
	for name, test := range map[string]struct {
		change func(*requestInput)
		want   request
	}{
		"nothing new":                        {func(*requestInput) {}, requestNone},
		"changed":                            {func(s *requestInput) { s.changed = true }, requestReport},
		"changed, ready check only":          {func(s *requestInput) { s.changed, s.update = true, readyCheck }, requestNone},
		"changed, publish only":              {func(s *requestInput) { s.changed, s.update = true, publishOnly }, requestNone},
		"changed, request in progress":       {func(s *requestInput) { s.changed, s.busy = true, true }, requestNone},
		"expired":                            {func(s *requestInput) { s.reportDue = true }, requestReport},
		"first ready":                        {func(s *requestInput) { s.becameReady, s.fastUpdates, s.update = true, true, readyCheck }, requestReport},
		"ready again":                        {func(s *requestInput) { s.becameReady, s.update = true, readyCheck }, requestNone},
		"not in the watch":                   {func(s *requestInput) { s.present, s.changed = false, true }, requestConfirm},
		"not in the watch, just confirmed":   {func(s *requestInput) { s.present, s.changed, s.canConfirm = false, true, false }, requestReport},
		"no watch yet":                       {func(s *requestInput) { s.present, s.synced = false, false }, requestNone},
		"not registered":                     {func(s *requestInput) { s.phase = registering }, requestRegister},
		"not registered, in a back-off":      {func(s *requestInput) { s.phase, s.canRegister = registering, false }, requestNone},
		"deleted":                            {func(s *requestInput) { s.phase, s.present, s.changed = absent, false, true }, requestNone},
		"deleted, watch is behind":           {func(s *requestInput) { s.phase, s.canConfirm = absent, false }, requestNone},
		"deleted and recreated":              {func(s *requestInput) { s.phase, s.recreated, s.canConfirm = absent, true, false }, requestConfirm},
		"deleted and restored from a backup": {func(s *requestInput) { s.phase = absent }, requestConfirm},
	} {
		assert.Equal(t, test.want, at(test.change), name)
	}
}

func TestFrequencyDefaults(t *testing.T) {
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
