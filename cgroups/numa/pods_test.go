// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// Each state has the pods of its own changes, also after many later changes of states that begin at it.
func TestStatesKeepTheirPods(t *testing.T) {
	p := newPolicy(t, []topology.Node{{ID: 0, Memory: 1000 * mib}})
	type version struct {
		state numa.State
		pods  map[string][]string // names of containers with memory
	}
	random := rand.New(rand.NewPCG(7, 8))
	versions := []version{{pods: map[string][]string{}}}
	longest := 0
	for range 1000 {
		last := versions[max(0, len(versions)-1-random.IntN(3))] // some changes begin at an earlier state
		next := version{state: last.state, pods: maps.Clone(last.pods)}
		uid := fmt.Sprint("u", random.IntN(60))
		switch assigned := last.pods[uid]; {
		case random.IntN(3) > 0 && len(assigned) < 3:
			pod := newPod(uid, map[string]uint64{numa.Memory: mib})
			for i := range 2 {
				pod.Containers = append(pod.Containers, numa.Container{Name: fmt.Sprint("c", i+1), Requests: pod.Containers[0].Requests})
			}
			i := slices.IndexFunc(pod.Containers, func(c numa.Container) bool { return !slices.Contains(assigned, c.Name) })
			var err error
			next.state, err = p.Reserve(last.state, pod, i, device.Hint{})
			require.NoError(t, err)
			next.pods[uid] = append(slices.Clone(assigned), pod.Containers[i].Name)
		case len(assigned) > 1 && random.IntN(2) == 0:
			next.state = p.ReleaseContainer(last.state, uid, assigned[0])
			next.pods[uid] = assigned[1:]
		default:
			next.state = p.Release(last.state, uid)
			delete(next.pods, uid)
		}
		longest = max(longest, len(next.pods))
		versions = append(versions, next)
	}
	require.Greater(t, longest, 20)
	for i, v := range versions {
		containers := 0
		saved := p.Save(v.state).Pods
		require.Equal(t, slices.Sorted(maps.Keys(v.pods)), v.state.Pods(), "version %d", i)
		for uid, names := range v.pods {
			require.ElementsMatch(t, names, slices.Collect(maps.Keys(saved[uid])), "version %d, pod %s", i, uid)
			containers += len(names)
			for _, name := range names {
				require.Equal(t, []numa.Block{{Type: numa.Memory, Nodes: 1, Size: mib}}, v.state.Blocks(uid, name))
			}
		}
		node := p.Nodes(v.state)[0]
		require.Equal(t, containers, node.Assignments)
		require.Equal(t, uint64(containers)*mib, node.Memory[numa.Memory].Reserved)
	}
}
