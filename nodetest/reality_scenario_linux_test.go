// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/internal/worker"
)

// nodeName is the name of both nodes.
const nodeName = "n1"

// scenario is a node with pods, which a real and a simulated node run.
type scenario struct {
	seed    uint64
	attempt uint64 // scenarios of this seed before it were not determinate
	pods    []*corev1.Pod
	// hard and soft are MiB that all pods may use until evictionHard and evictionSoft are met. A soft of zero is no threshold.
	hard, soft, softSeconds int
}

// attempts has, by seed, the number of the first scenario whose outcome is determinate and has the wanted evictions and OOM kills.
// TestScenariosAreDeterminate checks them, and prints them with NODETEST_GENERATE=1.
func attempts() [2 * scenarios]uint64 {
	return [...]uint64{
		4, 228, 163, 4, 21, 70, 11, 135, 5, 153, 11, 1139, 1, 840, 142, 22, 0, 820, 0, 115,
		88, 17, 4, 157, 0, 84, 369, 128, 40, 871, 6, 84, 106, 103, 13, 2627, 2, 125, 63, 349,
	}
}

// wantedEvictions returns the least number of evictions in a scenario: one, two or three.
func (s *scenario) wantedEvictions() int { return 1 + int(s.seed%3) }

// wantedKills returns the least number of OOM kills in a scenario: one in every second.
func (s *scenario) wantedKills() int { return int(s.seed % 2) }

// drawScenario returns three to six pods whose memory, or page cache, grows. At least one has a CPU limit.
func drawScenario(seed, attempt uint64) scenario {
	random := rand.New(rand.NewPCG(seed, 3+attempt))
	s := scenario{seed: seed, attempt: attempt, hard: 150 + random.IntN(150)}
	if random.IntN(3) == 0 {
		s.soft, s.softSeconds = s.hard-30-random.IntN(50), 3+random.IntN(6)
	}
	for i := range 3 + random.IntN(4) {
		kind := random.IntN(6)
		if i < 3 {
			kind = []int{0, 1, 3}[i] // a ramp, stairs, and a CPU limit
		}
		s.pods = append(s.pods, generatePod(random, fmt.Sprint("p", i), kind))
	}
	return s
}

// generatePod returns a pod of one of six kinds. No pod grows by more than 10 MiB per second: the kernel gives a real process its pages in this time
// even if the host is busy, while a simulated one has them at once.
func generatePod(random *rand.Rand, name string, kind int) *corev1.Pod {
	r := nodetest.Resources{Memory: []string{"", "16Mi", "30Mi", "40Mi"}[random.IntN(4)]}
	var usage string
	switch kind {
	case 0:
		seconds := 15 + random.IntN(16)
		usage = fmt.Sprintf("memory=ramp(5Mi,%dMi,%ds)", 5+seconds*(4+random.IntN(5)), seconds)
	case 1:
		usage = "memory=" + stairs(10, 6+random.IntN(8), 40+random.IntN(60), 20+random.IntN(10), 100+random.IntN(80))
	case 2:
		usage = fmt.Sprintf("memory=%dMi cpu=0.%d", 5+random.IntN(40), 1+random.IntN(2))
	case 3:
		r.CPU, r.CPULimit = "50m", fmt.Sprint(100+50*random.IntN(6), "m")
		usage = fmt.Sprintf("memory=%dMi cpu=1", 5+random.IntN(30))
	case 4: // the OOM killer ends it
		limit := 40 + random.IntN(40)
		r.Memory, r.MemoryLimit = "16Mi", fmt.Sprint(limit, "Mi")
		usage = fmt.Sprintf("memory=ramp(2Mi,%dMi,%ds)", limit+20, 10+random.IntN(8))
	case 5:
		usage = fmt.Sprintf("memory=10Mi cache=ramp(1Mi,%dMi,%ds)", 40+random.IntN(60), 12+random.IntN(13))
	}
	pod := nodetest.NewPod(name, r, usage)
	if kind == 3 {
		// Without it, pod and container have equal quotas, and the kernel counts the throttled time of either or both of them.
		pod.Spec.Resources = &corev1.ResourceRequirements{
			Requests: pod.Spec.Containers[0].Resources.Requests, Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}
	}
	pod.Spec.Priority = new([]int32{0, 0, 0, 100, 1000}[random.IntN(5)])
	return pod
}

// stairs returns steps from an amount in MiB to other amounts, at ages in seconds, which are reached by 10 MiB per second.
func stairs(amount int, levels ...int) string {
	text := []string{fmt.Sprintf("%dMi@0s", amount)}
	for i := 0; i < len(levels); i += 2 {
		for age, level := levels[i], levels[i+1]; amount < level; age++ {
			amount = min(amount+10, level)
			text = append(text, fmt.Sprintf("%dMi@%ds", amount, age))
		}
	}
	return "steps(" + strings.Join(text, ",") + ")"
}

// loads returns the loads of the workers of a pod.
func loads(pod *corev1.Pod) ([]worker.Load, error) {
	b, err := nodetest.ParseBehavior(pod.Annotations[nodetest.AnnotationUsage], 0)
	if err != nil {
		return nil, err
	}
	amount := func(c nodetest.Curve, age time.Duration) float64 {
		if c == nil {
			return 0
		}
		return max(c(age), 0)
	}
	var list []worker.Load
	for age := time.Duration(0); age <= scenarioSeconds*time.Second; age += worker.Tick {
		list = append(list, worker.Load{
			CPU: amount(b.Usage.CPU, age), Memory: int(amount(b.Usage.Memory, age) / worker.Block), Cache: int(amount(b.Usage.Cache, age) / worker.Block),
		})
	}
	return list, nil
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
	fmt.Fprintf(&b, "attempt %d: evictionHard after %d MiB", s.attempt, s.hard)
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
