// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/nodetest"
)

// nodeName is the name of both nodes.
const nodeName = "n1"

// scenario is a node with pods, which a real and a simulated node run.
type scenario struct {
	seed uint64
	pods []*corev1.Pod
	// hard and soft are MiB that all pods may use until evictionHard and evictionSoft are met. A soft of zero is no threshold.
	hard, soft, softSeconds int
}

// generateScenario returns three to six pods whose memory, or page cache, grows.
func generateScenario(seed uint64) scenario {
	random := rand.New(rand.NewPCG(seed, 3))
	s := scenario{seed: seed, hard: 150 + random.IntN(150)}
	if random.IntN(3) == 0 {
		s.soft, s.softSeconds = s.hard-30-random.IntN(50), 3+random.IntN(6)
	}
	for i := range 3 + random.IntN(4) {
		kind := random.IntN(6)
		if i < 2 {
			kind = i // a ramp, and steps
		}
		s.pods = append(s.pods, generatePod(random, fmt.Sprint("p", i), kind))
	}
	return s
}

// generatePod returns a pod of one of six kinds.
func generatePod(random *rand.Rand, name string, kind int) *corev1.Pod {
	r := nodetest.Resources{Memory: []string{"", "16Mi", "30Mi", "40Mi"}[random.IntN(4)]}
	var usage string
	switch kind {
	case 0:
		usage = fmt.Sprintf("memory=ramp(5Mi,%dMi,%ds)", 100+random.IntN(150), 15+random.IntN(16))
	case 1:
		usage = fmt.Sprintf("memory=steps(10Mi@0s,%dMi@%ds,%dMi@%ds)", 40+random.IntN(60), 6+random.IntN(8), 100+random.IntN(80), 18+random.IntN(10))
	case 2:
		usage = fmt.Sprintf("memory=%dMi cpu=0.%d", 5+random.IntN(40), 1+random.IntN(2))
	case 3:
		r.CPU, r.CPULimit = "50m", fmt.Sprint(100+50*random.IntN(6), "m")
		usage = fmt.Sprintf("memory=%dMi cpu=1", 5+random.IntN(30))
	case 4: // the OOM killer ends it
		limit := 40 + random.IntN(40)
		r.Memory, r.MemoryLimit = "16Mi", fmt.Sprint(limit, "Mi")
		usage = fmt.Sprintf("memory=ramp(2Mi,%dMi,%ds)", limit+20, 8+random.IntN(8))
	case 5:
		usage = fmt.Sprintf("memory=10Mi cache=ramp(1Mi,%dMi,%ds)", 40+random.IntN(60), 10+random.IntN(15))
	}
	pod := nodetest.NewPod(name, r, usage)
	pod.Spec.Priority = new([]int32{0, 0, 0, 100, 1000}[random.IntN(5)])
	return pod
}

// config returns the configuration of the agent. idle is the available memory with all pods before they grow.
func (s *scenario) config(idle int64) (c agent.Config) {
	threshold := func(used int) string { return fmt.Sprint((idle-int64(used)<<20)>>20, "Mi") }
	c.Kubelet.EvictionHard = map[string]string{"memory.available": threshold(s.hard)}
	if s.soft > 0 {
		c.Kubelet.EvictionSoft = map[string]string{"memory.available": threshold(s.soft)}
		c.Kubelet.EvictionSoftGracePeriod = map[string]string{"memory.available": fmt.Sprint(s.softSeconds, "s")}
		c.Kubelet.EvictionMaxPodGracePeriod = 2
	}
	c.Node.ParallelStarts = 100
	c.Kubelet.ClusterDNS = []string{"10.96.0.10"} // otherwise each pod gets a warning
	return c
}

// String describes the scenario in lines.
func (s *scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "evictionHard after %d MiB", s.hard)
	if s.soft > 0 {
		fmt.Fprintf(&b, ", evictionSoft after %d MiB for %d s", s.soft, s.softSeconds)
	}
	for _, p := range s.pods {
		r := p.Spec.Containers[0].Resources
		fmt.Fprintf(&b, "\n    %s: %s; priority %d; memory %s of %s; CPU limit %s", p.Name, p.Annotations[nodetest.AnnotationUsage], *p.Spec.Priority,
			r.Requests.Memory(), r.Limits.Memory(), r.Limits.Cpu())
	}
	return b.String()
}
