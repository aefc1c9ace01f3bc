// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// randomPods returns pods that are described by bytes: every third is Guaranteed and stays within its requests, the others grow.
func randomPods(description []byte) (pods []randomPod) {
	for i := 0; i+3 < len(description) && len(pods) < 12; i += 4 {
		a, b, c, d := int(description[i]), int(description[i+1]), int(description[i+2]), int(description[i+3])
		p := randomPod{name: fmt.Sprintf("p%02d", len(pods)), guaranteed: a%3 == 0}
		switch {
		case p.guaranteed:
			memory := fmt.Sprint(64+b, "Mi")
			p.resources = nodetest.Resources{CPU: "200m", CPULimit: "200m", Memory: memory, MemoryLimit: memory}
			p.usage = fmt.Sprintf("cpu=%d memory=%dMi", 1+c%2, 60+b)
		case a%3 == 1:
			p.resources = nodetest.Resources{CPU: "100m", Memory: fmt.Sprint(b, "Mi")}
			p.usage = fmt.Sprintf("cpu=0.%d memory=ramp(0,%dMi,%dm) cache=%dMi logs=%dMi", c%10, 8*b, 1+d%9, c, d)
		default:
			p.usage = fmt.Sprintf("cpu=%d memory=ramp(%dMi,%dMi,5m) tasks=%d exit=1@%ds stop=%ds", c%4, b, 10*b, 1+d, 30+c, d%40)
		}
		pods = append(pods, p)
	}
	return pods
}

// randomPod is a pod of a generated scenario.
type randomPod struct {
	name       string
	guaranteed bool
	resources  nodetest.Resources
	usage      string
}

// Whatever pods do: the node never uses more than it has, no Guaranteed pod that stays within its requests is evicted for memory, and every kill is
// explained by the OOM killer or by a stop that came before.
func FuzzNode(f *testing.F) {
	f.Add([]byte{0, 100, 1, 1, 1, 200, 9, 3, 2, 150, 200, 90, 1, 255, 255, 255})
	f.Add([]byte{2, 255, 3, 39, 2, 255, 3, 20, 0, 255, 0, 0, 1, 250, 10, 1, 1, 5, 5, 5})
	f.Fuzz(func(t *testing.T, description []byte) {
		pods := randomPods(description)
		if len(pods) == 0 {
			return
		}
		o := nodetest.Options{Machine: machine.Spec{CPUs: 2, Memory: 4 << 30, Tasks: 2000, Disk: machine.Disk{Bytes: 4 << 30}}}
		l, err := nodetest.NewLoop(t.Context(), o)
		require.NoError(t, err)
		checkInvariants(t, l, pods)
		synctest.Test(t, func(t *testing.T) { checkInvariants(t, nodetest.New(t, o), pods) })
	})
}

// checkInvariants runs pods on a node for six minutes.
func checkInvariants(t *testing.T, n interface {
	simulated
	Machine() *machine.Machine
	Age() time.Duration
}, pods []randomPod,
) {
	t.Helper()
	for _, p := range pods {
		require.NoError(t, n.Add(nodetest.NewPod(p.name, p.resources, p.usage)))
	}
	for range 12 {
		n.Advance(30 * time.Second)
		s, err := n.Machine().Cgroups().Stats(t.Context(), "")
		require.NoError(t, err)
		assert.LessOrEqual(t, s.Memory.Current, uint64(4<<30))
		assert.LessOrEqual(t, s.Pids.Current, uint64(2000))
		assert.LessOrEqual(t, time.Duration(s.CPU.Usage), 2*n.Age()+time.Millisecond)
	}
	log := n.Log()
	for _, e := range log.Match("", nodetest.KindEvent, "Evicted") {
		i := slices.IndexFunc(pods, func(p randomPod) bool { return "default/"+p.name == e.Pod })
		assert.False(t, pods[i].guaranteed && strings.Contains(e.Message, "memory"), "%v", e)
	}
	for _, e := range log.Match("", nodetest.KindExit, "137") {
		explained := slices.ContainsFunc(log, func(o nodetest.Entry) bool {
			return o.Pod == e.Pod && o.At <= e.At && (o.Kind == nodetest.KindOOM || o.Reason == "Killing")
		})
		assert.True(t, explained, "%v", e)
	}
}
