// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// With registerNode false, another client creates the Node object, as in the kubelet: its status is reported, and the pods of the API server run.
func TestPodsOfAPIServerRunWithoutRegistration(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	pod := newPod("web", "serve")
	pod.Spec.NodeName = "n1"
	require.NoError(t, server.Put(pod, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))
	var config agent.Config
	config.Node.NodeName, config.Kubelet.RegisterNode = "n1", new(false)
	a, err := agent.New(t.Context(), config, agent.Options{Logger: quiet, Ephemeral: true, Runtime: critest.New(critest.Options{}), API: server.Config()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { assert.NoError(t, a.Run(ctx)) })
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		p, _ := apiservertest.Get[*corev1.Pod](server, "default", "web")
		require.NotNil(c, p)
		assert.Equal(c, corev1.PodRunning, p.Status.Phase)
		node, _ := apiservertest.Get[*corev1.Node](server, "", "n1")
		require.NotNil(c, node)
		assert.NotEmpty(c, node.Status.Conditions)
		assert.NotContains(c, node.Labels, corev1.LabelHostname, "only the registration sets it")
	}, time.Minute, 10*time.Millisecond)
	require.Zero(t, server.CountRequests(apiservertest.Match{Verb: "create", Resource: "nodes"}))
}
