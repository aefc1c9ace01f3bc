// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package callout_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/lifecycle/callout"
)

func TestDoAbandonsFunctionThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := errors.New("answer")
		late, err := callout.Do(t.Context(), time.Minute, func(context.Context) error { return answer })
		require.Nil(t, late)
		require.Equal(t, answer, err)

		began := time.Now()
		late, err = callout.Do(t.Context(), time.Minute, func(ctx context.Context) error { <-ctx.Done(); return answer })
		require.Nil(t, late)
		require.Equal(t, answer, err)
		require.Equal(t, time.Minute, time.Since(began))

		began = time.Now()
		late, err = callout.Do(t.Context(), time.Minute, func(context.Context) error { time.Sleep(time.Hour); return answer })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), 2*time.Minute)
		require.Equal(t, answer, <-late)
		require.Equal(t, time.Hour, time.Since(began))
	})
}
