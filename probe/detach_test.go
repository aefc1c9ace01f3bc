// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/probe"
)

// A detached call continues while the set runs. It is cancelled a second after the context of Run, and Run waits for its
// return.
func TestDetachedCallEndsWithTheSet(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration // duration of the call after the timeout of the probe
		stop  time.Duration // time at which the set is stopped
		want  time.Duration // time at which the call ends and Run returns
	}{
		"call ends while the set runs":                        {takes: 3 * time.Second, stop: 8 * time.Second, want: 8 * time.Second},
		"call ends soon after the set is stopped":             {takes: 3 * time.Second, stop: 3500 * time.Millisecond, want: 4 * time.Second},
		"call is cancelled a second after the set is stopped": {takes: time.Minute, stop: 8 * time.Second, want: 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				returned := false
				d := startRecorder(t, probe.Options{})
				assert.NoError(t, d.set.Sync([]probe.Target{runningTarget("web", func(ctx context.Context) (probe.Result, error) {
					call, ended := probe.DetachContext(ctx)
					go func() {
						defer ended()
						select {
						case <-call.Done():
						case <-time.After(time.Second + test.takes):
						}
						returned = true
					}()
					<-ctx.Done()
					return fail(ctx)
				})}))
				time.Sleep(test.stop)
				d.stop()
				assert.True(t, returned, "Run must wait for the call")
				assert.Equal(t, test.want, time.Since(d.start))
			})
		})
	}
}

// Outside of a set, a detached call is never cancelled.
func TestDetachContextOutsideOfASetNeverEnds(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	call, ended := probe.DetachContext(ctx)
	cancel()
	assert.NoError(t, call.Err())
	assert.Equal(t, "value", call.Value(key{}))
	ended()
}
