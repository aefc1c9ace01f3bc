// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// recordEvent records an event of a pod.
func (r *recorder) recordEvent(pod cri.PodIdentity, e podevents.Event, _ map[string]string) {
	r.addEntry(Entry{Kind: KindEvent, Pod: pod.Namespace + "/" + pod.Name, Container: e.Container, Reason: e.Reason, Message: e.Message})
}

// recordStatus records the phase and the readiness of a pod.
func (r *recorder) recordStatus(pod *corev1.Pod, st *corev1.PodStatus) {
	name := pod.Namespace + "/" + pod.Name
	r.addChange(Entry{Kind: KindPhase, Pod: name, Reason: string(st.Phase)})
	i := slices.IndexFunc(st.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if i >= 0 {
		r.addChange(Entry{Kind: KindReady, Pod: name, Reason: string(st.Conditions[i].Status)})
	}
}

// recordConditions adds an entry with the node conditions that are true, if these conditions have changed.
func (r *recorder) recordConditions(conditions []eviction.Condition) {
	var names []string
	for _, c := range conditions {
		names = append(names, string(c))
	}
	r.addChange(Entry{Kind: KindCondition, Reason: cmp.Or(strings.Join(names, " "), "none")})
}

// recordOOM adds an entry for the process of container c, which the OOM killer has ended.
func (r *recorder) recordOOM(c *simulatedContainer, kill cgroupstest.KilledProc) {
	message := fmt.Sprintf("%d MiB of memory, oom_score_adj %d", kill.Memory>>20, kill.OOMScoreAdj)
	r.addEntry(Entry{Kind: KindOOM, Pod: c.pod.Namespace + "/" + c.pod.Name, Container: c.name, Reason: kill.FullCgroup.Cgroupfs(), Message: message})
}

// recordExit records that a container has exited.
func (r *recorder) recordExit(pod cri.PodIdentity, container string, code int32) {
	r.addEntry(Entry{Kind: KindExit, Pod: pod.Namespace + "/" + pod.Name, Container: container, Reason: strconv.Itoa(int(code))})
}
