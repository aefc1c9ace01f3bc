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

// ReasonEvicted is the reason in the status and event of an evicted pod, and of a pod that is not admitted under pressure.
const ReasonEvicted = "Evicted"

// Annotations of the event of an evicted pod. Source: pkg/kubelet/eviction/helpers.go.
const (
	OffendingContainersKey      = "offending_containers"
	OffendingContainersUsageKey = "offending_containers_usage"
	OffendingPodKey             = "offending_pod"
	OffendingPodUsageKey        = "offending_pod_usage"
	StarvedResourceKey          = "starved_resource"
)

// Explanation is the description of an eviction in the status and the event of the pod.
type Explanation struct {
	Reason      string
	Message     string
	Conditions  []corev1.PodCondition // for the pod status; the caller sets their times
	Annotations map[string]string     // of the event; nil: none
}

// Explain returns reason, message, conditions and event annotations for an evicted pod. The message has a sentence for each
// container that uses more of the starved resource, according to summary, than it requests. Source: evictionMessage in
// pkg/kubelet/eviction/helpers.go.
func Explain(victim eviction.Eviction, pod *corev1.Pod, summary *statsapi.Summary) Explanation {
	why := Explanation{Reason: ReasonEvicted, Message: victim.Message}
	starved := victim.Signal.Resource()
	if starved == "" { // a limit of local storage
		return why
	}
	if stats := findPodStats(summary, string(pod.UID)); stats != nil {
		why.explainPod(pod, stats, starved)
		why.explainContainers(pod, stats, starved)
		why.setAnnotation(StarvedResourceKey, string(starved))
	}
	why.Conditions = []corev1.PodCondition{disruptionCondition(why.Message)}
	return why
}

// disruptionCondition returns the pod condition DisruptionTarget with this message. Its status is True and its reason is
// TerminationByKubelet.
func disruptionCondition(message string) corev1.PodCondition {
	return corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: message,
	}
}

// findPodStats returns the stats of the pod with this UID, or nil. If summary has several stats of the pod, it returns the
// last.
func findPodStats(summary *statsapi.Summary, uid string) (found *statsapi.PodStats) {
	for i := range summary.Pods {
		if summary.Pods[i].PodRef.UID == uid {
			found = &summary.Pods[i]
		}
	}
	return found
}

func (x *Explanation) setAnnotation(key, value string) {
	if x.Annotations == nil {
		x.Annotations = make(map[string]string)
	}
	x.Annotations[key] = value
}

// explainPod adds a sentence and annotations about the memory usage of a pod with a pod-level memory request.
func (x *Explanation) explainPod(pod *corev1.Pod, stats *statsapi.PodStats, starved eviction.Resource) {
	if starved != eviction.Memory || pod.Spec.Resources == nil || stats.Memory == nil {
		return
	}
	request, ok := pod.Spec.Resources.Requests[corev1.ResourceMemory]
	if !ok {
		return
	}
	used := newQuantity(0)
	if stats.Memory.WorkingSetBytes != nil {
		used = newQuantity(*stats.Memory.WorkingSetBytes)
	}
	x.Message += formatExcess("Pod", pod.Name, used, request, starved)
	x.setAnnotation(OffendingPodKey, pod.Name)
	x.setAnnotation(OffendingPodUsageKey, used.String())
}

// explainContainers adds a sentence and annotations about containers that use more of the starved resource than they
// request.
func (x *Explanation) explainContainers(pod *corev1.Pod, stats *statsapi.PodStats, starved eviction.Resource) {
	var names, usages []string
	for i := range stats.Containers {
		c := containers.Find(&pod.Spec, stats.Containers[i].Name)
		used := containerUsage(&stats.Containers[i], starved)
		if c.Container == nil || c.Kind == containers.Ephemeral || used == nil {
			continue
		}
		request := c.Resources.Requests[corev1.ResourceName(starved)]
		if used.Cmp(request) > 0 {
			x.Message += formatExcess("Container", c.Name, used, request, starved)
			names, usages = append(names, c.Name), append(usages, used.String())
		}
	}
	x.setAnnotation(OffendingContainersKey, strings.Join(names, ","))
	x.setAnnotation(OffendingContainersUsageKey, strings.Join(usages, ","))
}

// formatExcess returns the kubelet's sentence about a "Pod" or "Container" that uses more than it requests.
func formatExcess(kind, name string, used *resource.Quantity, request resource.Quantity, starved eviction.Resource) string {
	request = request.DeepCopy() // String writes to it
	return fmt.Sprintf("%s %s was using %s, request is %s, has larger consumption of %s. ", kind, name, used.String(), request.String(), starved)
}

// containerUsage returns the container's usage of starved, the resource that the node lacks. It returns nil if the usage
// was not measured.
func containerUsage(c *statsapi.ContainerStats, starved eviction.Resource) *resource.Quantity {
	switch {
	case starved == eviction.Memory && c.Memory != nil && c.Memory.WorkingSetBytes != nil:
		return newQuantity(*c.Memory.WorkingSetBytes)
	case starved == eviction.EphemeralStorage && c.Rootfs != nil && c.Rootfs.UsedBytes != nil && c.Logs != nil && c.Logs.UsedBytes != nil:
		return newQuantity(*c.Rootfs.UsedBytes + *c.Logs.UsedBytes)
	default:
		return nil
	}
}

// newQuantity returns n bytes as a quantity, at most 2^63-1.
func newQuantity(n uint64) *resource.Quantity {
	return resource.NewQuantity(int64(min(n, math.MaxInt64)), resource.BinarySI)
}
