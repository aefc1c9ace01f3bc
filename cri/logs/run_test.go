// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/logs"
)

// A missing Run is reported, because logs would fill the disk. A second Run is an error, so that two loops do not rotate one
// log.
func TestRotatorReportsMissingOrSecondRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan error, 9)
		r, err := logs.NewRotator(critest.New(critest.Options{}), logs.RotatorOptions{
			Policy: logs.Policy{MaxSize: -1}, // no watches, because they would leave the synctest bubble
			Hooks:  logs.Hooks{RotationFailed: func(_ logs.Log, err error, _ time.Duration) { told <- err }},
		})
		require.NoError(t, err)
		r.SetLogs(nil)
		time.Sleep(time.Minute)
		require.Empty(t, told, "no error without logs")
		r.SetLogs([]logs.Log{{ContainerID: "c", Path: "/none"}})
		time.Sleep(10 * time.Second)
		require.Len(t, told, 1)
		require.EqualError(t, <-told, "logs.Rotator.Run is not running: call it in a goroutine of its own")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = r.Run(ctx) }()
		synctest.Wait()
		require.EqualError(t, r.Run(ctx), "logs.Rotator: second call of Run")
	})
}
