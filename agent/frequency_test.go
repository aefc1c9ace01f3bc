// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// The manifest at staticPodURL is requested every httpCheckFrequency.
func TestStaticPodURLIsRequestedEveryHTTPCheckFrequency(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "PodList", "items": []}`))
	}))
	defer server.Close()
	var config agent.Config
	config.Kubelet.StaticPodURL, config.Kubelet.HTTPCheckFrequency.Duration = server.URL, 10*time.Millisecond
	a, err := agent.New(t.Context(), config, agent.Options{Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{})})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { assert.NoError(t, a.Run(ctx)) })
	require.Eventually(t, func() bool { return requests.Load() > 3 }, 19*time.Second, time.Millisecond, "the default is 20 s")
}
