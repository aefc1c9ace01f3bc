// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/shutdown"
)

const s = time.Second

// pod returns a pod. A negative grace means no grace period.
func pod(name string, priority int32, grace int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{Priority: &priority}}
	if grace >= 0 {
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	return p
}

func TestPeriodsOfKubeletSettings(t *testing.T) {
	assert.Equal(t, []shutdown.Period{{0, 20 * s}, {shutdown.CriticalPriority, 10 * s}}, shutdown.Periods(30*s, 10*s))
	assert.Equal(t, []shutdown.Period{{0, 30 * s}, {shutdown.CriticalPriority, 0}}, shutdown.Periods(30*s, 0))
	assert.Equal(t, []shutdown.Period{{0, 0}, {shutdown.CriticalPriority, s}}, shutdown.Periods(1500*time.Millisecond, 1500*time.Millisecond))
	assert.Empty(t, shutdown.Periods(0, 0))
	assert.Empty(t, shutdown.Periods(10*s, 20*s), "the period of critical pods exceeds the whole period")
	assert.Empty(t, shutdown.Periods(10*s, -s))
}

func TestGroupsByPriority(t *testing.T) {
	periods := []shutdown.Period{{1000, 20 * s}, {0, 10 * s}, {shutdown.CriticalPriority, 5 * s}}
	noPriority := pod("none", 0, 60)
	noPriority.Spec.Priority = nil
	pods := []*corev1.Pod{
		noPriority, pod("lowest", -10, 60), pod("zero", 0, 3), pod("999", 999, -1), pod("1000", 1000, 20), pod("1001", 1001, 21),
		pod("critical", shutdown.CriticalPriority, 5), pod("more critical", shutdown.CriticalPriority+1000, 60),
	}
	var got []string
	for _, g := range shutdown.Groups(periods, pods) {
		for _, p := range g.Pods {
			got = append(got, fmt.Sprintf("%d %s %s", g.Priority, p.Name, g.Grace(p)))
		}
	}
	assert.Equal(t, []string{
		"0 none 10s", "0 lowest 10s", "0 zero 3s", "0 999 10s", "1000 1000 20s", "1000 1001 20s",
		"2000000000 critical 5s", "2000000000 more critical 5s",
	}, got)
	assert.Equal(t, int32(1000), periods[0].Priority, "the argument is not modified")
	assert.Empty(t, shutdown.Groups(nil, pods))
	above := shutdown.Groups([]shutdown.Period{{100, s}}, []*corev1.Pod{pod("low", 5, 1)})
	assert.Len(t, above[0].Pods, 1, "the first group includes all pods with a lower priority")
}
