// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// Successive pods of one name use no more memory than the last pod. In a previous version, workers of 160 pods of 250 KiB
// kept 39 MiB.
func TestSuccessorKeepsNoPredecessorInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		follow := func(i int) {
			pod := podtest.Pod("a")
			pod.UID = types.UID(fmt.Sprintf("uid-%d", i))
			pod.Annotations = map[string]string{"large": strings.Repeat("x", 250<<10)}
			n.set(pod)
			time.Sleep(30 * time.Second)
			require.Equal(t, i+1, ops(rt, "RunPodSandbox"), "one sandbox per pod")
		}
		for i := range 5 {
			follow(i)
		}
		before := heap()
		for i := range 160 {
			follow(5 + i)
		}
		require.Less(t, int64(heap()-before)>>20, int64(10), "160 successors use too many MiB of memory")
	})
}

// heap returns the bytes of memory in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
