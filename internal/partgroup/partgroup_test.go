// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package partgroup_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/partgroup"
)

func TestStartReportsErrorWithPartName(t *testing.T) {
	var g partgroup.Group
	g.Add("good", func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	g.Add("bad", func(context.Context) error { return errors.New("no directory") })
	require.Equal(t, 2, g.Len())
	ctx, fail := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	var log bytes.Buffer
	g.Start(ctx, &wg, fail, slog.New(slog.NewTextHandler(&log, nil)))
	wg.Wait()
	require.EqualError(t, context.Cause(ctx), "bad: no directory")
	require.Contains(t, log.String(), `msg="a part of the agent ended" part=bad error="no directory"`)
}
