// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
)

// eater allocates 20 MB ten times a second, or as fast as the kernel permits, and frees nothing. Each dd blocks on its
// output, because sleep reads nothing.
const eater = "while :; do dd if=/dev/zero bs=40000000 count=1 2>/dev/null | sleep 100000 & sleep 0.2; done"

// Three pods use memory. The pod whose usage grows beyond its request without limit, and which ignores SIGTERM, is evicted
// before the kernel kills any process. Its event names the reason, and no other pod is evicted.
func TestIntegrationMemoryPressure(t *testing.T) {
	s := newStarvedNode(t)
	rounds := 1
	if text := os.Getenv("NODEAGENT_ROUNDS"); text != "" { // make soak-vm sets ten
		var err error
		rounds, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	s.manifests.Write("calm.yaml", resourcesYAML("calm", "{}"))
	s.writePod("held", "dd if=/dev/zero bs=30000000 count=1 2>/dev/null | sleep 100000", "{limits: {cpu: 500m, memory: 64Mi}}")
	s.startScript("held")
	a := s.start(map[string]string{"memory.available": "100Mi"}, nil)
	calm := s.awaitRunning(vmTimeout, "calm-n1", "held-n1")

	inTime := 0
	for i := range rounds {
		name := fmt.Sprint("eater", i)
		s.writePod(name, eater, "{requests: {memory: 16Mi}}")
		pod := name + "-n1"
		s.awaitRunning(vmTimeout, pod)
		_, uid := s.containers(pod)
		before := oomKills(t)
		stop := s.watchGrowth(cgroups.PodPath("", cgroups.Burstable, uid))
		s.startScript(name)
		began := time.Now()
		s.awaitEvicted(a, pod, vmTimeout)
		g, killed := stop(), oomKills(t)-before
		t.Logf("round %d: %.0f MB in a second, %d MB in all, evicted after %v, %d processes killed for memory",
			i, g.rate/1e6, g.most/1e6, time.Since(began), killed)
		if killed == 0 {
			inTime++
		}
		a.AwaitLine(vmTimeout, "reason=Evicted", "pod="+pod, "The node was low on resource: memory. Threshold quantity: 100Mi, available: ",
			"Container main was using ", "request is 16Mi", "starved_resource:memory")
		s.manifests.Remove(name + ".yaml")
		a.AwaitLine(vmTimeout, "pod is removed", pod)
		s.requireSameContainers(calm)
	}

	if _, err := os.Stat("/proc/pressure/memory"); err == nil {
		a.AwaitLine(vmTimeout, "something waits for memory")
	} else {
		a.AwaitLine(vmTimeout, "pressure of memory is not watched")
	}
	require.GreaterOrEqual(t, inTime*10, rounds*9, "in nine of ten rounds the pod is evicted before an OOM kill; %d rounds", rounds)
	a.AwaitLine(vmTimeout, `msg="node conditions"`, "conditions=[MemoryPressure]")
	a.AwaitLine(vmTimeout, `msg="node conditions"`, "conditions=[]")
	s.drain(a)
}
