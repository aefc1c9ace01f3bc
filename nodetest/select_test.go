// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodetest"
)

// Behave comes before selectors, these before annotations, and the first selector that matches counts.
func TestBehaviorsAreSelectedInOrder(t *testing.T) {
	memory := func(mib float64) nodetest.Behavior {
		return nodetest.Behavior{Usage: nodetest.Usage{Memory: nodetest.Constant(mib * (1 << 20))}}
	}
	l, err := nodetest.NewLoop(t.Context(), nodetest.Options{
		Behave: func(pod *corev1.Pod, _ string) (nodetest.Behavior, bool) { return memory(1), pod.Name == "coded" },
		Selected: []nodetest.SelectedBehavior{
			{Selector: "app=web", Container: "other", Behavior: memory(100)},
			{Selector: "app=web,tier!=cache", Behavior: memory(2)},
			{Selector: "app", Behavior: memory(3)},
		},
	})
	require.NoError(t, err)
	for name, labels := range map[string]map[string]string{
		"coded": {"app": "web"}, "web": {"app": "web"}, "cache": {"app": "web", "tier": "cache"}, "annotated": nil,
	} {
		pod := nodetest.NewPod(name, nodetest.Resources{}, "memory=4Mi")
		pod.Labels = labels
		require.NoError(t, l.Add(pod))
	}
	l.Advance(10 * time.Second)
	for name, mib := range map[string]uint64{"coded": 1, "web": 2, "cache": 3, "annotated": 4} {
		s, err := l.Stats(name)
		require.NoError(t, err)
		assert.Equal(t, mib<<20, s.Memory.Current, name)
	}
}

func TestInvalidSelectorIsAnErrorOfTheOption(t *testing.T) {
	o := nodetest.Options{Selected: []nodetest.SelectedBehavior{{}, {Selector: "a=b=c"}}}
	_, err := nodetest.NewLoop(t.Context(), o)
	require.ErrorContains(t, err, `nodetest.Options.Selected[1].Selector "a=b=c"`)
	synctest.Test(t, func(t *testing.T) {
		_, err := nodetest.Open(t.Context(), o)
		require.ErrorContains(t, err, `nodetest.Options.Selected[1].Selector "a=b=c"`)
	})
}

func TestAnnotationNamesAContainerOfATrace(t *testing.T) {
	trace := readTrace(t, "pod,t,mib,cpu\nweb/1,0,10,0.5\nweb/1,60,20,1\n", plain())
	l, err := nodetest.NewLoop(t.Context(), nodetest.Options{Traces: map[string]*nodetest.Trace{"day": trace}})
	require.NoError(t, err)
	require.NoError(t, l.Add(
		nodetest.NewPod("traced", nodetest.Resources{}, "trace=day/web/1 cpu=0.1"),
		nodetest.NewPod("wrong", nodetest.Resources{}, "trace=day/web/2"), nodetest.NewPod("untraced", nodetest.Resources{}, "trace=night/web/1"),
	))
	l.Advance(90 * time.Second)
	s, err := l.Stats("traced")
	require.NoError(t, err)
	assert.Equal(t, uint64(20<<20), s.Memory.Current)
	assert.InDelta(t, 9, time.Duration(s.CPU.Usage).Seconds(), 0.1)
	for pod, want := range map[string]string{"default/wrong": `trace "day" has no container "web/2"`, "default/untraced": `no trace "night" in Options.Traces`} {
		failed := l.Log().Match(pod, nodetest.KindEvent, "Failed")
		require.NotEmpty(t, failed)
		assert.Contains(t, failed[0].Message, want)
	}
}
