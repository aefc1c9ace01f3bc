// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cgroups"
)

// list returns a resource list from alternating names and quantities; an empty quantity omits the name.
func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			l[corev1.ResourceName(pair[0])] = resource.MustParse(pair[1])
		}
	}
	return l
}

// newPod returns a pod with one container and a UID equal to its name.
func newPod(name string, requests, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
		}}},
	}
}

// podSet is the set of pods of a test.
type podSet struct {
	mu      sync.Mutex // guards the fields below
	active  map[string]*corev1.Pod
	others  map[string]bool // pods that may run, but whose requests do not count
	unknown bool            // some source has not reported yet
}

func (s *podSet) Active() ([]*corev1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(s.active)) {
		pods = append(pods, s.active[name])
	}
	return pods, !s.unknown
}

func (s *podSet) MayRun(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active[uid] != nil || s.others[uid]
}

// change modifies the set.
func (s *podSet) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func pods(list ...*corev1.Pod) *podSet {
	s := &podSet{active: map[string]*corev1.Pod{}, others: map[string]bool{}}
	for _, pod := range list {
		s.active[string(pod.UID)] = pod
	}
	return s
}

// text formats the set fields of r, with memory in a suitable unit.
func text(r cgroups.Resources) string {
	var words []string
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if r.CPUShares != 0 {
		say("shares=%d", r.CPUShares)
	}
	if r.CPUQuota != 0 {
		say("quota=%d/%d", r.CPUQuota, r.CPUPeriod)
	}
	if r.CpusetCPUs != "" {
		say("cpus=%s", r.CpusetCPUs)
	}
	for _, f := range []struct {
		name  string
		value *int64
	}{{"max", r.MemoryMax}, {"min", r.MemoryMin}, {"low", r.MemoryLow}, {"high", r.MemoryHigh}} {
		if f.value != nil {
			say("%s=%s", f.name, bytes(*f.value))
		}
	}
	if r.PidsMax != nil {
		say("pids=%d", *r.PidsMax)
	}
	for _, size := range slices.Sorted(maps.Keys(r.Hugetlb)) {
		say("%s=%s", size, bytes(r.Hugetlb[size]))
	}
	return strings.Join(words, " ")
}

func bytes(n int64) string {
	if n < 0 {
		return "unlimited"
	}
	return resource.NewQuantity(n, resource.BinarySI).String()
}
