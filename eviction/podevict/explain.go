// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/internal/containers"
)

// ReasonEvicted is the reason in the status of an evicted pod, of its event, and of a pod that is not admitted under pressure.
const ReasonEvicted = "Evicted"

// Annotations of the event of an evicted pod. Source: pkg/kubelet/eviction/helpers.go.
const (
	OffendingContainersKey      = "offending_containers"
	OffendingContainersUsageKey = "offending_containers_usage"
	OffendingPodKey             = "offending_pod"
	OffendingPodUsageKey        = "offending_pod_usage"
	StarvedResourceKey          = "starved_resource"
)

// Explanation is what others are told about the end of a pod.
type Explanation struct {
	Reason      string
	Message     string
	Conditions  []corev1.PodCondition // to be added to the status; their times are for whoever adds them
	Annotations map[string]string     // of the event; nil: none
}

// Explain says why a pod is evicted: the message of the decision, and which of its containers used more than they request. The
// summary is the one that was decided from. Source: evictionMessage in pkg/kubelet/eviction/helpers.go.
func Explain(e eviction.Eviction, pod *corev1.Pod, s *statsapi.Summary) Explanation {
	why := Explanation{Reason: ReasonEvicted, Message: e.Message}
	starved := e.Signal.Resource()
	if starved == "" { // a limit of local storage
		return why
	}
	if stats := find(s, string(pod.UID)); stats != nil {
		why.explainPod(pod, stats, starved)
		why.explainContainers(pod, stats, starved)
		why.annotate(StarvedResourceKey, string(starved))
	}
	why.Conditions = []corev1.PodCondition{disruption(why.Message)}
	return why
}

// disruption is the condition of a pod that the node ends although its source wants it.
func disruption(message string) corev1.PodCondition {
	return corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: message,
	}
}

// find returns the last stats of a pod, or nil.
func find(s *statsapi.Summary, uid string) (found *statsapi.PodStats) {
	for i := range s.Pods {
		if s.Pods[i].PodRef.UID == uid {
			found = &s.Pods[i]
		}
	}
	return found
}

func (x *Explanation) annotate(key, value string) {
	if x.Annotations == nil {
		x.Annotations = make(map[string]string)
	}
	x.Annotations[key] = value
}

// explainPod says what a pod used that has a memory request of its own.
func (x *Explanation) explainPod(pod *corev1.Pod, stats *statsapi.PodStats, starved eviction.Resource) {
	if starved != eviction.Memory || pod.Spec.Resources == nil || stats.Memory == nil {
		return
	}
	request, ok := pod.Spec.Resources.Requests[corev1.ResourceMemory]
	if !ok {
		return
	}
	used := quantity(0)
	if stats.Memory.WorkingSetBytes != nil {
		used = quantity(*stats.Memory.WorkingSetBytes)
	}
	x.Message += larger("Pod", pod.Name, used, request, starved)
	x.annotate(OffendingPodKey, pod.Name)
	x.annotate(OffendingPodUsageKey, used.String())
}

// explainContainers says which containers used more than they request.
func (x *Explanation) explainContainers(pod *corev1.Pod, stats *statsapi.PodStats, starved eviction.Resource) {
	var names, usages []string
	for i := range stats.Containers {
		c := containers.Find(&pod.Spec, stats.Containers[i].Name)
		used := containerUsed(&stats.Containers[i], starved)
		if c.Container == nil || c.Kind == containers.Ephemeral || used == nil {
			continue
		}
		request := c.Resources.Requests[corev1.ResourceName(starved)]
		if used.Cmp(request) > 0 {
			x.Message += larger("Container", c.Name, used, request, starved)
			names, usages = append(names, c.Name), append(usages, used.String())
		}
	}
	x.annotate(OffendingContainersKey, strings.Join(names, ","))
	x.annotate(OffendingContainersUsageKey, strings.Join(usages, ","))
}

// larger is the sentence about what used more than it requests.
func larger(kind, name string, used *resource.Quantity, request resource.Quantity, starved eviction.Resource) string {
	request = request.DeepCopy() // String writes to it
	return fmt.Sprintf("%s %s was using %s, request is %s, has larger consumption of %s. ", kind, name, used.String(), request.String(), starved)
}

// containerUsed returns what a container uses of a resource, or nil where that is not known.
func containerUsed(c *statsapi.ContainerStats, starved eviction.Resource) *resource.Quantity {
	switch {
	case starved == eviction.Memory && c.Memory != nil && c.Memory.WorkingSetBytes != nil:
		return quantity(*c.Memory.WorkingSetBytes)
	case starved == eviction.EphemeralStorage && c.Rootfs != nil && c.Rootfs.UsedBytes != nil && c.Logs != nil && c.Logs.UsedBytes != nil:
		return quantity(*c.Rootfs.UsedBytes + *c.Logs.UsedBytes)
	default:
		return nil
	}
}

// quantity returns a number of bytes, at most 2^63-1.
func quantity(n uint64) *resource.Quantity {
	return resource.NewQuantity(int64(min(n, math.MaxInt64)), resource.BinarySI)
}
