// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

func TestNewLoopNamesTheInvalidOption(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	t.Cleanup(server.Close)
	threshold := nodetest.Options{}
	threshold.Config.Kubelet.EvictionHard = map[string]string{"memory.available": "some"}
	for name, c := range map[string]struct {
		options nodetest.Options
		want    string
	}{
		"machine":   {nodetest.Options{Machine: machine.Spec{CPUs: -1}}, "machine.Spec.CPUs -1"},
		"API":       {nodetest.Options{API: server}, "Options.API"},
		"logger":    {nodetest.Options{Logger: slog.New(slog.DiscardHandler)}, "Logger"},
		"adjust":    {nodetest.Options{Adjust: func(o *agent.Options) { o.Ephemeral = true }}, "Options.Adjust"},
		"threshold": {threshold, "memory.available"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nodetest.NewLoop(t.Context(), c.options)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestLoopRefusesPodsThatItDoesNotSimulate(t *testing.T) {
	l, err := nodetest.NewLoop(t.Context(), nodetest.Options{})
	require.NoError(t, err)
	hooked := nodetest.NewPod("hooked", nodetest.Resources{}, "")
	hooked.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
	nameless := nodetest.NewPod("nameless", nodetest.Resources{}, "")
	nameless.Spec.Containers[0].Name = ""
	require.NoError(t, l.Add(nodetest.NewPod("twice", nodetest.Resources{}, "")))
	for pod, want := range map[*corev1.Pod]string{
		hooked: "pod default/hooked: container main has lifecycle hooks", nameless: "pod default/nameless: spec.containers[0].name",
		nodetest.NewPod("twice", nodetest.Resources{}, ""): "pod default/twice: the node has a pod",
	} {
		assert.ErrorContains(t, l.Add(pod), want)
	}
	assert.EqualError(t, l.Delete("none"), "pod none: not found")
	_, err = l.Stats("none")
	assert.EqualError(t, err, "pod none: not found")
}

// A wrong annotation is an error of the container's start, as with a Node.
func TestLoopReportsAWrongAnnotationAsAnEvent(t *testing.T) {
	l, err := nodetest.NewLoop(t.Context(), nodetest.Options{})
	require.NoError(t, err)
	require.NoError(t, l.Add(nodetest.NewPod("wrong", nodetest.Resources{}, "cpu=much")))
	l.Advance(time.Minute)
	failed := l.Log().Match("default/wrong", nodetest.KindEvent, "Failed")
	require.NotEmpty(t, failed)
	assert.Contains(t, failed[0].Message, `field "cpu=much"`)
}

func TestLoopStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := nodetest.NewLoop(ctx, nodetest.Options{})
	require.NoError(t, err)
	cancel()
	before := l.Age()
	l.Advance(time.Hour)
	assert.Equal(t, before, l.Age())
}
