// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/qos"
)

// workerVariable has the usage of a worker: the test program itself, as a real process that does what an AnnotationUsage says.
const workerVariable = "NODETEST_USAGE"

// beganVariable has the name of a file to which a worker writes the time of its begin in nanoseconds.
const beganVariable = "NODETEST_BEGAN"

// work uses CPU and anonymous memory as usage says, until the process is killed. Memory changes five times a second.
func work(usage string) {
	debug.SetGCPercent(-1)
	b, err := nodetest.ParseBehavior(usage, 0)
	if err != nil {
		panic(err)
	}
	began := time.Now()
	if file := os.Getenv(beganVariable); file != "" {
		if err := os.WriteFile(file, []byte(strconv.FormatInt(began.UnixNano(), 10)), 0o600); err != nil {
			panic(err)
		}
	}
	if cpu := b.Usage.CPU; cpu != nil {
		for range int(math.Ceil(cpu(0))) {
			go spin(cpu(0) / math.Ceil(cpu(0)))
		}
	}
	var blocks [][]byte // of a MiB
	for ; ; time.Sleep(200 * time.Millisecond) {
		want := 0
		if b.Usage.Memory != nil {
			want = int(b.Usage.Memory(time.Since(began))) >> 20
		}
		for len(blocks) < want {
			block, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				panic(err)
			}
			for i := 0; i < len(block); i += os.Getpagesize() {
				block[i] = 1
			}
			blocks = append(blocks, block)
		}
		for len(blocks) > want {
			_ = unix.Munmap(blocks[len(blocks)-1])
			blocks = blocks[:len(blocks)-1]
		}
	}
}

// spin uses a fraction of a CPU.
func spin(fraction float64) {
	runtime.LockOSThread()
	const slice = 20 * time.Millisecond
	for {
		for began := time.Now(); time.Since(began) < time.Duration(fraction*float64(slice)); {
		}
		if fraction < 1 {
			time.Sleep(time.Duration((1 - fraction) * float64(slice)))
		}
	}
}

// realScenario is a generated scenario: pods, and the threshold memory.available in bytes.
type realScenario struct {
	pods      []*corev1.Pod
	threshold int64
}

// generateScenario returns two to four pods. One or two of them grow so much that the node falls below its threshold, and in some scenarios one has
// a CPU limit.
func generateScenario(random *rand.Rand, available int64) *realScenario {
	free := int64(100 + random.IntN(100)) // MiB until an eviction: User Mode Linux gives a process some 20 MiB in a second
	s := &realScenario{threshold: available - free<<20}
	growing := 1 + random.IntN(2)
	for i := range 2 + random.IntN(3) {
		usage := fmt.Sprintf("memory=%dMi", 5+random.IntN(20))
		if i < growing {
			usage = fmt.Sprintf("memory=ramp(10Mi,%dMi,%ds)", free+int64(random.IntN(int(free/2))), 15+random.IntN(20))
		}
		r := nodetest.Resources{Memory: "30Mi"} // more than it uses
		if i < growing || random.IntN(4) == 0 {
			r.Memory = []string{"", "5Mi", "10Mi"}[random.IntN(3)]
		}
		if i >= growing && random.IntN(2) == 0 {
			usage += " cpu=1"
			r.CPU, r.CPULimit = "100m", fmt.Sprint(100+50*random.IntN(5), "m")
		}
		pod := nodetest.NewPod(fmt.Sprint("pod-", i), r, usage)
		if random.IntN(3) == 0 {
			pod.Spec.Priority = new(int32(random.IntN(3)))
		}
		pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
		s.pods = append(s.pods, pod)
	}
	return s
}

// startOrder returns the pods in the order of their starts.
func (s *realScenario) startOrder(started map[string]time.Duration) []*corev1.Pod {
	pods := slices.Clone(s.pods)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(started[a.Name], started[b.Name]) })
	return pods
}

// class returns the QoS class of the cgroup of a pod.
func (s *realScenario) class(pod *corev1.Pod) cgroups.QOS { return cgroups.QOS(qos.StatusClass(pod)) }

// String describes the scenario, a pod in a line.
func (s *realScenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  memory.available<%dMi", s.threshold>>20)
	for _, pod := range s.pods {
		r := pod.Spec.Containers[0].Resources
		fmt.Fprintf(&b, "\n  %s requests %s, limit %s CPU, %s", pod.Name, r.Requests.Memory(), r.Limits.Cpu(), pod.Annotations[nodetest.AnnotationUsage])
		if pod.Spec.Priority != nil {
			fmt.Fprintf(&b, ", priority %d", *pod.Spec.Priority)
		}
	}
	return b.String()
}

func mapKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }
