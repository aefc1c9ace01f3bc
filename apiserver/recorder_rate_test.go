// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// The requests for events have the rate limit of the options, or else that of the config.
func TestEventsAreLimitedByRateOfOptionsOrConfig(t *testing.T) {
	for name, test := range map[string]struct {
		options             apiserver.Options
		configQPS           float32
		configBurst, atOnce int
	}{
		"options":  {apiserver.Options{EventQPS: 1, EventBurst: 3}, 0, 0, 3},
		"no limit": {apiserver.Options{EventQPS: -1}, 1, 2, 20},
		"config":   {apiserver.Options{}, 1, 2, 2},
		"default":  {apiserver.Options{}, 0, 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apiservertest.NewServer(apiservertest.Options{})
				defer server.Close()
				config := server.Config()
				config.QPS, config.Burst = test.configQPS, test.configBurst
				test.options.NodeName = "n1"
				source, err := apiserver.New(config, test.options)
				require.NoError(t, err)
				recorder := source.Recorder(apiserver.RecorderOptions{})
				for i := range 20 {
					recorder.Event(corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p" + strconv.Itoa(i)}, corev1.EventTypeNormal, "R", "m")
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				wg.Go(func() { assert.NoError(t, recorder.Run(ctx)) })
				time.Sleep(500 * time.Millisecond)
				assert.Len(t, events(server), test.atOnce)
				time.Sleep(time.Second)
				assert.Len(t, events(server), min(20, test.atOnce+1))
			})
		})
	}
}
