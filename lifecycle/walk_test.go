// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// TestRandomWalk lets containers die, calls fail, hang or lose their answers, specs change and agents crash, and
// checks after each step that no pod has two live containers of one name, and at the end, when the faults stop, that
// everything is as the specs want it.
func TestRandomWalk(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { walk(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func walk(t *testing.T, rnd *rand.Rand) {
	var mu sync.Mutex // guards rnd: hooks of the runtime come from many goroutines
	chance := func(p float64) bool { mu.Lock(); defer mu.Unlock(); return rnd.Float64() < p }
	pick := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }

	rt := critest.New(critest.Options{})
	var healed atomic.Bool
	via := faulty{&critest.Faults{Runtime: rt, Around: func(ctx context.Context, op, _ string, call func() error) error {
		if op == "List" || healed.Load() || !chance(0.2) {
			return call()
		}
		switch pick(3) {
		case 0:
			return errors.New("fault: refused")
		case 1:
			if err := call(); err != nil {
				return err
			}
			return errors.New("fault: the answer is lost")
		}
		ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
		defer cancel()
		return critest.Hang(ctx)
	}}, rt, rt}

	pods := map[string]*corev1.Pod{}
	generation := 0
	n := boot(t, rt, via, lifecycle.Options{})
	apply := func() {
		var all []*corev1.Pod
		for i := range 4 {
			if pod := pods[fmt.Sprint("p", i)]; pod != nil {
				all = append(all, pod)
			}
		}
		n.set(all...)
	}
	for range 150 {
		name := fmt.Sprint("p", pick(4))
		switch pick(6) {
		case 0:
			delete(pods, name)
			apply()
		case 1: // a new pod of that name, as an edited manifest is
			generation++
			pods[name] = testPod(name, "one", "two")
			pods[name].UID = types.UID(fmt.Sprint(name, "-", generation))
			apply()
		case 2: // another image for the same pod
			if pod := pods[name]; pod != nil {
				pod = pod.DeepCopy()
				generation++
				pod.Spec.Containers[0].Image = fmt.Sprint("image:", generation)
				pods[name] = pod
				apply()
			}
		case 3:
			_ = rt.Kill(name+"/one", 137)
		case 4:
			n.stop()
			n = boot(t, rt, via, lifecycle.Options{})
			apply()
		}
		time.Sleep(time.Duration(pick(5000)) * time.Millisecond)
		requireNoTwins(t, rt)
	}

	healed.Store(true)
	time.Sleep(20 * time.Minute) // hung calls end, back-offs run out
	requireNoTwins(t, rt)
	snap, err := rt.List(t.Context())
	require.NoError(t, err)
	has := map[string]cri.Pod{}
	for p := range snap.Pods() {
		has[p.UID] = p
	}
	require.Len(t, has, len(pods), "every pod, and nothing else")
	for name, pod := range pods {
		require.Equal(t, corev1.PodRunning, n.phase(name), "%s", n.errors())
		for _, c := range pod.Spec.Containers {
			live, ok := rt.Container(string(pod.UID) + "/" + c.Name)
			require.True(t, ok)
			require.Equal(t, cri.ContainerRunning, live.State)
			require.Equal(t, c.Image, live.Image.UserSpecifiedImage)
		}
	}
}

// requireNoTwins fails if a pod name has two live containers of one name, whatever the UIDs.
func requireNoTwins(t *testing.T, rt *critest.Runtime) {
	t.Helper()
	snap, err := rt.List(t.Context())
	require.NoError(t, err)
	live := map[string]string{}
	for p := range snap.Pods() {
		for _, c := range p.Containers {
			if c.State == cri.ContainerRunning {
				key := p.Name + "/" + c.Name
				require.Empty(t, live[key], "%s runs twice: %s and %s", key, live[key], c.ID)
				live[key] = c.ID
			}
		}
	}
}
