// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// healthzPort and the socket of the pods API are served without enableServer, as in the kubelet.
func TestHealthzAndPodsAPIAreServedWithoutServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	root, err := os.MkdirTemp("", "agent") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(root)) })
	var config agent.Config
	config.Node.RootDir, config.Kubelet.EnableServer = root, new(false)
	port := l.Addr().(*net.TCPAddr).Port
	config.Kubelet.HealthzBindAddress, config.Kubelet.HealthzPort = "127.0.0.2", new(int32(port))
	a, err := agent.New(t.Context(), config, agent.Options{
		Logger: quiet, Runtime: critest.New(critest.Options{}), Sources: []source.Source{source.Pods("code", make(chan []*corev1.Pod))},
	})
	require.NoError(t, err)
	require.Nil(t, a.Handler())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { assert.NoError(t, a.Run(ctx)) })
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		resp, err := (&http.Client{Timeout: time.Second}).Get("http://" + net.JoinHostPort("127.0.0.2", strconv.Itoa(port)) + "/healthz")
		require.NoError(c, err)
		assert.NoError(c, resp.Body.Close())
		assert.Equal(c, http.StatusOK, resp.StatusCode)
		info, err := os.Stat(filepath.Join(root, "pods-api/pods-api.sock"))
		require.NoError(c, err)
		assert.Equal(c, os.ModeSocket, info.Mode().Type())
	}, time.Minute, 10*time.Millisecond)
}
