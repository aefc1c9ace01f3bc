// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

func TestForAndUntilEndWithContext(t *testing.T) {
	const ends = 5 * time.Second // timeout of the context
	for name, test := range map[string]struct {
		sleep func(ctx context.Context) error
		takes time.Duration
		err   error
	}{
		"for less":              {func(ctx context.Context) error { return sleep.For(ctx, time.Second) }, time.Second, nil},
		"for more":              {func(ctx context.Context) error { return sleep.For(ctx, time.Minute) }, ends, context.DeadlineExceeded},
		"for nothing":           {func(ctx context.Context) error { return sleep.For(ctx, 0) }, 0, nil},
		"for negative duration": {func(ctx context.Context) error { return sleep.For(ctx, -1) }, 0, nil},
		"until soon":            {func(ctx context.Context) error { return sleep.Until(ctx, time.Now().Add(2*time.Second)) }, 2 * time.Second, nil},
		"until late":            {func(ctx context.Context) error { return sleep.Until(ctx, time.Now().Add(time.Hour)) }, ends, context.DeadlineExceeded},
		"until before":          {func(ctx context.Context) error { return sleep.Until(ctx, time.Now().Add(-time.Hour)) }, 0, nil},
		"until never":           {func(ctx context.Context) error { return sleep.Until(ctx, time.Time{}) }, ends, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), ends)
				defer cancel()
				began := time.Now()
				assert.Equal(t, test.err, test.sleep(ctx))
				assert.Equal(t, test.takes, time.Since(began))

				time.Sleep(2 * ends)
				assert.Equal(t, context.DeadlineExceeded, test.sleep(ctx), "a context that has already ended")
			})
		})
	}
}

func TestEarlier(t *testing.T) {
	never, now := time.Time{}, time.Now()
	late := now.Add(time.Second)
	for _, test := range []struct{ a, b, want time.Time }{
		{now, late, now}, {late, now, now}, {now, never, now}, {never, now, now}, {never, never, never},
	} {
		assert.Equal(t, test.want, sleep.Earlier(test.a, test.b))
	}
}
