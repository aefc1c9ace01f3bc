// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// smallNode is an agent on a node with few CPUs, whose source returns the published statuses like an API server.
type smallNode struct {
	*node
	pods map[string]*corev1.Pod // by name
}

const nodeCPUs = 10

// startSmallNode starts the agent. Container starts of the pod whose UID the test stores in hung do not return.
func startSmallNode(t *testing.T, hung *atomic.Value) *smallNode {
	s := &smallNode{pods: map[string]*corev1.Pod{}}
	rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
		if c.Labels[cri.LabelPodName] == "job" {
			return critest.ExitAfter(20*time.Second, 0)
		}
		return critest.Script{}
	}})
	via := &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: rt}, Around: func(ctx context.Context, op, id string, call func(context.Context) error) error {
		if uid, _ := hung.Load().(string); uid != "" && op == "StartContainer" && strings.HasPrefix(id, uid+"-") {
			return critest.Hang(ctx)
		}
		return call(ctx)
	}}
	s.node = startAgent(t, rt, via, lifecycle.Options{AdmitResize: func(pod *corev1.Pod) error {
		if failures := s.failures(pod); len(failures) > 0 {
			return failures[0].Rejection()
		}
		return nil
	}})
	return s
}

// failures returns the reasons why the node has no capacity for a pod in addition to the active pods.
func (s *smallNode) failures(pod *corev1.Pod) []admission.Failure {
	active, _ := s.reconciler.Active()
	others := slices.DeleteFunc(active, func(other *corev1.Pod) bool { return other.UID == pod.UID })
	return admission.Check(pod, &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(nodeCPUs, resource.DecimalSI), corev1.ResourcePods: resource.MustParse("110"),
	}}}, others)
}

// setPod adds a pod that requests CPUs to the source, or changes its request.
func (s *smallNode) setPod(name string, cpus int64, priority int32) {
	pod := podtest.Pod(name)
	if before := s.pods[name]; before != nil {
		pod = before.DeepCopy()
	}
	pod.Generation++
	pod.Spec.Priority = &priority
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI)}
	if name == "job" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	s.pods[name] = pod
}

// apply passes the pods with their published statuses to the agent.
func (s *smallNode) apply() {
	for name, pod := range s.pods {
		s.mu.Lock()
		st := s.statuses[name]
		s.mu.Unlock()
		if st != nil {
			pod = pod.DeepCopy()
			pod.Status = *st.DeepCopy()
			s.pods[name] = pod
		}
	}
	s.set(slices.Collect(maps.Values(s.pods))...)
}

// allocatedCPUs returns the CPUs allocated to each pod, with a star if the pod requests another amount.
func (s *smallNode) allocatedCPUs() map[string]string {
	cpus := map[string]string{}
	for name, pod := range s.pods {
		containers := s.status(name).ContainerStatuses
		main := slices.IndexFunc(containers, func(c corev1.ContainerStatus) bool { return c.Name == "main" })
		cpus[name] = containers[main].Resources.Requests.Cpu().String()
		if cpus[name] != pod.Spec.Containers[0].Resources.Requests.Cpu().String() {
			cpus[name] += "*"
		}
	}
	return cpus
}

// A deferred resize is done within a second after its resources are released.
func TestDeferredResizeDoneWhenOtherPodReleasesResources(t *testing.T) {
	tests := map[string]struct {
		other   string // pod with 8 of the 10 CPUs
		release func(s *smallNode)
	}{
		"removed":    {"web", func(s *smallNode) { delete(s.pods, "web"); s.apply() }},
		"terminated": {"job", func(*smallNode) { time.Sleep(14 * time.Second) }}, // the job exits after 20 s
		"resized smaller": {"web", func(s *smallNode) {
			s.setPod("web", 1, 0)
			s.apply()
			time.Sleep(time.Second)
			require.Equal(s.t, map[string]string{"a": "1*", "web": "1"}, s.allocatedCPUs(), "resources are released only when the pod object has the new status")
			s.apply()
		}},
		"evicted": {"web", func(s *smallNode) {
			require.NoError(s.t, s.reconciler.Evict(s.t.Context(), "uid-web", podstatus.Eviction{Reason: "Evicted", Grace: time.Second}))
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hung atomic.Value
				s := startSmallNode(t, &hung)
				s.setPod("a", 1, 0)
				s.setPod(test.other, 8, 0)
				s.apply()
				time.Sleep(time.Second)
				s.setPod("a", 5, 0)
				s.apply()
				time.Sleep(5 * time.Second)
				require.Equal(t, "1*", s.allocatedCPUs()["a"])

				test.release(s)
				time.Sleep(time.Second)
				require.Equal(t, "5", s.allocatedCPUs()["a"])
			})
		})
	}
}

// Deferred resizes are decided in the order of pod priority. A worker that hangs delays the next resizes by a second.
func TestDeferredResizesDecidedByPriority(t *testing.T) {
	for hangs, want := range map[bool]map[string]string{
		false: {"high": "5", "low": "1*", "small": "2"},
		true:  {"high": "1*", "low": "5", "small": "2"},
	} {
		t.Run(fmt.Sprintf("hangs=%t", hangs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hung atomic.Value
				s := startSmallNode(t, &hung)
				for name, priority := range map[string]int32{"low": 1, "high": 2, "small": -1} {
					s.setPod(name, 1, priority)
				}
				s.setPod("other", 7, 0)
				s.pods["high"].Spec.Containers = append(s.pods["high"].Spec.Containers, corev1.Container{Name: "helper", Image: "busybox"})
				s.apply()
				time.Sleep(time.Second)
				s.setPod("small", 2, -1)
				s.setPod("low", 5, 1)
				s.setPod("high", 5, 2)
				s.apply()
				time.Sleep(time.Second)
				s.apply()
				time.Sleep(time.Minute)
				require.Equal(t, map[string]string{"high": "1*", "low": "1*", "small": "1*", "other": "7"}, s.allocatedCPUs())

				if hangs {
					hung.Store("uid-high")
					require.NoError(t, s.rt.Kill("high/helper", 1))
					time.Sleep(time.Second)
				}
				delete(s.pods, "other")
				s.apply()
				time.Sleep(1500 * time.Millisecond)
				require.Equal(t, want, s.allocatedCPUs())
			})
		})
	}
}

// Pods are created, deleted and resized at random. Seconds later no resize is deferred that fits beside the other pods.
func TestEveryDeferredResizeThatFitsIsDone(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hung atomic.Value
				s, rnd := startSmallNode(t, &hung), rand.New(rand.NewPCG(seed, 0))
				deferred, granted := 0, 0
				for i := range 100 {
					before := s.deferred()
					if names := slices.Sorted(maps.Keys(s.pods)); len(names) == 0 || len(names) < 6 && rnd.IntN(4) == 0 {
						s.setPod(fmt.Sprint("p", i), 1, int32(rnd.IntN(3)))
					} else if name := names[rnd.IntN(len(names))]; rnd.IntN(6) == 0 {
						delete(s.pods, name)
					} else {
						s.setPod(name, 1+rnd.Int64N(6), *s.pods[name].Spec.Priority)
					}
					s.apply()
					time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
					s.apply() // with the statuses
					time.Sleep(time.Second)
					for _, name := range s.deferred() {
						require.NotEmpty(t, s.failures(s.pods[name]), "%s fits: %v", name, s.allocatedCPUs())
						deferred++
					}
					for _, name := range before {
						if s.pods[name] != nil && !slices.Contains(s.deferred(), name) {
							granted++
						}
					}
				}
				t.Logf("%d times a resize was deferred, %d times it was granted later", deferred, granted)
				require.NotZero(t, granted)
			})
		})
	}
}

// deferred returns the names of the pods with a deferred resize.
func (s *smallNode) deferred() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if podtest.ConditionOf(s.status(name), corev1.PodResizePending) != "absent" {
			names = append(names, name)
		}
	}
	return names
}
