// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certrequest_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/certrequest"
)

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// newLeaf returns a client certificate of node n1 that is valid from start for the duration valid.
func newLeaf(valid time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		NotBefore: start(), NotAfter: start().Add(valid),
	}
}

func TestRotationDeadlineIsWithinLifetime(t *testing.T) {
	end := start().Add(100 * time.Hour)
	assert.Equal(t, start().Add(70*time.Hour), certrequest.RotationDeadline(start(), end, 0))
	assert.Equal(t, start().Add(80*time.Hour), certrequest.RotationDeadline(start(), end, 0.5))
	assert.True(t, certrequest.RotationDeadline(start(), end, 0.999999).Before(start().Add(90*time.Hour)))
	assert.Equal(t, start(), certrequest.RotationDeadline(start(), start(), 0.5), "a certificate that expires when it becomes valid")
}

// Step returns the next action for each state.
func TestStep(t *testing.T) {
	n1, n2 := certrequest.ClientTemplate("n1"), certrequest.ClientTemplate("n2")
	hours := func(n float64) time.Time { return start().Add(time.Duration(n * float64(time.Hour))) }
	for name, test := range map[string]struct {
		state certrequest.State
		at    time.Time
		do    certrequest.Verb
		why   string
		wake  time.Duration // relative to at
	}{
		"no template":                 {certrequest.State{}, hours(0), certrequest.Wait, "the names for the certificate are not known yet", time.Second},
		"no certificate":              {certrequest.State{Template: &n1}, hours(0), certrequest.Request, "there is no certificate", 0},
		"fresh":                       {certrequest.State{Template: &n1, Leaf: newLeaf(100 * time.Hour)}, hours(0), certrequest.Wait, "the certificate must be rotated before it expires", 10 * time.Second},
		"nearly due":                  {certrequest.State{Template: &n1, Leaf: newLeaf(100 * time.Hour)}, hours(70).Add(-time.Second), certrequest.Wait, "the certificate must be rotated before it expires", time.Second},
		"due":                         {certrequest.State{Template: &n1, Leaf: newLeaf(100 * time.Hour)}, hours(70), certrequest.Request, "the certificate must be rotated before it expires", 0},
		"due later":                   {certrequest.State{Template: &n1, Leaf: newLeaf(100 * time.Hour), Random: 0.5}, hours(70), certrequest.Wait, "the certificate must be rotated before it expires", 10 * time.Second},
		"expired":                     {certrequest.State{Template: &n1, Leaf: newLeaf(time.Hour)}, hours(2), certrequest.Request, "the certificate has expired", 0},
		"certificate of another node": {certrequest.State{Template: &n2, Leaf: newLeaf(time.Hour)}, hours(0), certrequest.Request, `the certificate lacks common name "system:node:n2", not "system:node:n1"`, 0},
		"bootstrap certificate":       {certrequest.State{Template: &n1, Leaf: newLeaf(time.Hour), IsBootstrap: true}, hours(0), certrequest.Request, "the certificate is a bootstrap credential", 0},
		"clock set back": {
			certrequest.State{Template: &n1, Leaf: newLeaf(100 * time.Hour), LastTemplate: &n1, RequestTimes: []time.Time{hours(0)}}, hours(-24), certrequest.Wait, "the certificate must be rotated before it expires", 10 * time.Second,
		},
		"clock set back after a failure": {
			certrequest.State{Template: &n1, LastTemplate: &n1, RequestTimes: []time.Time{hours(0)}, Failures: 9, FailedAt: hours(0)}, hours(-24), certrequest.Request, "there is no certificate", 0,
		},
		"request pending": {certrequest.State{Template: &n1, Pending: &certrequest.Pending{Template: n1, Since: hours(0)}}, hours(0.1), certrequest.Wait, "a request is under way", 10 * time.Second},
		"request pending beyond the timeout": {
			certrequest.State{Template: &n1, Pending: &certrequest.Pending{Template: n1, Since: hours(0)}}, hours(0.26), certrequest.Cancel, "it was not signed within 15m0s", 0,
		},
		"request pending for exactly the timeout": {
			certrequest.State{Template: &n1, Pending: &certrequest.Pending{Template: n1, Since: hours(0)}}, hours(0.25), certrequest.Cancel, "it was not signed within 15m0s", 0,
		},
		"pending request with outdated names": {
			certrequest.State{Template: &n2, Pending: &certrequest.Pending{Template: n1, Since: hours(0)}}, hours(0.1), certrequest.Cancel, "its names are outdated", 0,
		},
		"pending request with outdated names, valid certificate": {
			certrequest.State{Template: &n1, Leaf: newLeaf(time.Hour), Pending: &certrequest.Pending{Template: n2, Since: hours(0)}}, hours(0.1), certrequest.Wait, "a request is under way", 10 * time.Second,
		},
		"pending request without a template": {certrequest.State{Pending: &certrequest.Pending{Template: n1, Since: hours(0)}}, hours(0.1), certrequest.Wait, "a request is under way", 10 * time.Second},
		"certificate expired, less than a minute after its request": {
			certrequest.State{Template: &n1, Leaf: newLeaf(time.Second), LastTemplate: &n1, RequestTimes: []time.Time{hours(0)}},
			hours(0).Add(50 * time.Second), certrequest.Wait, "the certificate has expired, after a pause", 10 * time.Second,
		},
		"certificate expired, a minute after its request": {
			certrequest.State{Template: &n1, Leaf: newLeaf(time.Second), LastTemplate: &n1, RequestTimes: []time.Time{hours(0)}}, hours(0).Add(time.Minute), certrequest.Request, "the certificate has expired", 0,
		},
		"template changed": {
			certrequest.State{Template: &n2, Leaf: newLeaf(time.Hour), LastTemplate: &n1, RequestTimes: []time.Time{hours(0)}},
			hours(0).Add(time.Second), certrequest.Request,
			`the certificate lacks common name "system:node:n2", not "system:node:n1"`, 0,
		},
		"failed": {
			certrequest.State{Template: &n1, LastTemplate: &n1, RequestTimes: []time.Time{hours(0)}, Failures: 1, FailedAt: hours(0)},
			hours(0).Add(time.Second), certrequest.Wait, "there is no certificate, after a pause", time.Second,
		},
		"denied": {
			certrequest.State{Template: &n1, LastTemplate: &n1, RequestTimes: []time.Time{hours(0)}, Failures: 1, FailedAt: hours(0), LastRefused: true},
			hours(0).Add(59 * time.Second), certrequest.Wait, "there is no certificate, after a pause", time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			action := certrequest.Step(test.state, test.at)
			assert.Equal(t, test.do, action.Verb)
			assert.Equal(t, test.why, action.Reason)
			if test.do == certrequest.Wait {
				assert.Equal(t, test.wake, action.Wake.Sub(test.at))
			} else {
				assert.Zero(t, action.Wake)
			}
		})
	}
}

// machine executes the actions of Step. Its API server fails a request or issues the certificate at once.
type machine struct {
	state        certrequest.State
	now          time.Time
	requestTimes []time.Time
}

// runUntil executes actions until the given time. answer returns the result of each request.
func (m *machine) runUntil(t *testing.T, until time.Time, answer func() (issued *x509.Certificate, refused bool)) {
	t.Helper()
	for steps := 0; m.now.Before(until); steps++ {
		require.Less(t, steps, 1_000_000, "Step causes a tight loop")
		action := certrequest.Step(m.state, m.now)
		require.Equal(t, action, certrequest.Step(m.state, m.now), "equal states give equal actions")
		switch action.Verb {
		case certrequest.Wait:
			require.True(t, action.Wake.After(m.now), action)
			m.now = action.Wake
		case certrequest.Request:
			m.requestTimes = append(m.requestTimes, m.now)
			m.state.LastTemplate = m.state.Template
			m.state.RequestTimes = append(m.state.RequestTimes, m.now)
			if issued, refused := answer(); issued != nil {
				m.state.Leaf, m.state.Failures, m.state.LastRefused = issued, 0, false
			} else {
				m.state.Failures, m.state.FailedAt, m.state.LastRefused = m.state.Failures+1, m.now, refused
			}
		case certrequest.Cancel:
			t.Fatal("Cancel without a pending request")
		}
	}
}

func (m *machine) requestGaps() (gaps []time.Duration) {
	for i := range m.requestTimes[1:] {
		gaps = append(gaps, m.requestTimes[i+1].Sub(m.requestTimes[i]))
	}
	return gaps
}

// Failed requests are repeated with the back-off of the kubelet, and refused requests once a minute.
func TestFailuresDelayNextRequest(t *testing.T) {
	n1 := certrequest.ClientTemplate("n1")
	m := &machine{state: certrequest.State{Template: &n1}, now: start()}
	m.runUntil(t, start().Add(3*time.Minute), func() (*x509.Certificate, bool) { return nil, false })
	const s = time.Second
	assert.Equal(t, []time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 32 * s, 32 * s, 32 * s}, m.requestGaps())

	m = &machine{state: certrequest.State{Template: &n1}, now: start()}
	m.runUntil(t, start().Add(5*time.Minute), func() (*x509.Certificate, bool) { return nil, true })
	assert.Equal(t, []time.Duration{60 * s, 60 * s, 60 * s, 60 * s}, m.requestGaps())
}

// For any signer there are at most five requests a minute, and one a minute after an issued certificate. The signer of
// Kubernetes sets notBefore five minutes back, so that a certificate that is valid for a minute is mostly due for rotation
// when it is issued.
func TestStepHasNoTightLoop(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		n1 := certrequest.ClientTemplate("n1")
		m := &machine{state: certrequest.State{Template: &n1, Random: random.Float64()}, now: start()}
		valid := time.Duration(random.IntN(600)) * time.Second
		fails := random.IntN(4)
		issued := 0
		m.runUntil(t, start().Add(2*time.Hour), func() (*x509.Certificate, bool) {
			if random.IntN(4) < fails {
				return nil, random.IntN(2) == 0
			}
			issued++
			c := newLeaf(0)
			c.NotBefore, c.NotAfter = m.now.Add(-5*time.Minute), m.now.Add(valid)
			return c, false
		})
		for i := range m.requestTimes {
			if i >= 5 {
				require.GreaterOrEqual(t, m.requestTimes[i].Sub(m.requestTimes[i-5]), time.Minute, "seed %d", seed)
			}
		}
		require.LessOrEqual(t, issued, 121, "seed %d", seed)
		if valid > 2*time.Minute && fails == 0 {
			for _, gap := range m.requestGaps() {
				require.Less(t, gap, valid, "seed %d: the certificate is replaced before it expires", seed)
			}
		}
	}
}
