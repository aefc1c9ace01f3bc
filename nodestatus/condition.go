// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// maxMessage is how many bytes of a message a condition gets. What a runtime says may be of any length, and an object that is too large
// for the API server is a node that is not heard of any more.
const maxMessage = 4 << 10

// pressure is a condition that is false on a node that is well. Index 1 is what it says when it is true.
type pressure struct {
	kind                   corev1.NodeConditionType
	reason, message, event [2]string
}

// pressures are in the order in which a new Node object has them.
func pressures() [3]pressure {
	return [...]pressure{
		{
			corev1.NodeMemoryPressure,
			[2]string{"KubeletHasSufficientMemory", "KubeletHasInsufficientMemory"},
			[2]string{"kubelet has sufficient memory available", "kubelet has insufficient memory available"},
			[2]string{ReasonSufficientMemory, ReasonInsufficientMemory},
		},
		{
			corev1.NodeDiskPressure,
			[2]string{"KubeletHasNoDiskPressure", "KubeletHasDiskPressure"},
			[2]string{"kubelet has no disk pressure", "kubelet has disk pressure"},
			[2]string{ReasonNoDiskPressure, ReasonDiskPressure},
		},
		{
			corev1.NodePIDPressure,
			[2]string{"KubeletHasSufficientPID", "KubeletHasInsufficientPID"},
			[2]string{"kubelet has sufficient PID available", "kubelet has insufficient PID available"},
			[2]string{ReasonSufficientPID, ReasonInsufficientPID},
		},
	}
}

// setConditions sets the four conditions that are an agent's own. All others stay as they are.
func (b *builder) setConditions() {
	h, all := &b.in.Health, pressures()
	for i, is := range []bool{h.MemoryPressure, h.DiskPressure, h.PIDPressure} {
		b.setPressure(&all[i], is)
	}
	b.setReady()
}

// setPressure writes reason and message only when the status changes, as the kubelet does: those of an older version stay.
func (b *builder) setPressure(p *pressure, is bool) {
	status, which := corev1.ConditionFalse, 0
	if is {
		status, which = corev1.ConditionTrue, 1
	}
	all := b.node.Status.Conditions
	at := lastOf(all, p.kind)
	if at < 0 {
		at = len(all)
		b.node.Status.Conditions = append(all, corev1.NodeCondition{Type: p.kind, Status: corev1.ConditionUnknown})
	}
	c := &b.node.Status.Conditions[at]
	c.LastHeartbeatTime = b.now
	if c.Status != status {
		c.Status, c.Reason, c.Message, c.LastTransitionTime = status, p.reason[which], p.message[which], b.now
		b.becomes(p.event[which])
	}
}

// setReady makes the condition Ready anew. Only the time of its last change is kept.
func (b *builder) setReady() {
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastHeartbeatTime: b.now, LastTransitionTime: b.now,
	}
	if err := utilerrors.NewAggregate(b.unready()); err != nil {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", err.Error()
	}
	ready.Message = short(ready.Message)
	if warning := b.in.Health.Warning; warning != nil {
		ready.Message = short(fmt.Sprintf("%s. WARNING: %s", ready.Message, warning))
	}
	at := firstOf(b.node.Status.Conditions, corev1.NodeReady)
	if at < 0 {
		b.node.Status.Conditions = append(b.node.Status.Conditions, ready)
		return
	}
	c := &b.node.Status.Conditions[at]
	if c.Status == ready.Status {
		ready.LastTransitionTime = c.LastTransitionTime
	} else if ready.Status == corev1.ConditionTrue {
		b.becomes(ReasonReady)
	} else {
		b.becomes(ReasonNotReady)
	}
	*c = ready
}

// unready returns everything that keeps the node from being ready; nil ones among it mean nothing.
func (b *builder) unready() []error {
	h := &b.in.Health
	errs := append(b.in.Runtime.errors(b.in.Now, h.Unhealthy), h.Storage)
	if h.ShuttingDown {
		errs = append(errs, errors.New("node is shutting down"))
	}
	required := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
	if !b.in.Config.NoLocalStorageCapacity {
		required = append(required, corev1.ResourceEphemeralStorage)
	}
	var missing []string
	for _, name := range required {
		if _, found := b.node.Status.Capacity[name]; !found {
			missing = append(missing, string(name))
		}
	}
	if len(missing) > 0 {
		errs = append(errs, errors.New("missing node capacity for resources: "+strings.Join(missing, ", ")))
	}
	return errs
}

// short cuts a message off.
func short(s string) string {
	if len(s) > maxMessage {
		s = s[:maxMessage-len("...")] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func firstOf(all []corev1.NodeCondition, kind corev1.NodeConditionType) int {
	return slices.IndexFunc(all, func(c corev1.NodeCondition) bool { return c.Type == kind })
}

// lastOf is what the kubelet takes of several pressure conditions of a type, which the API server does not let pass.
func lastOf(all []corev1.NodeCondition, kind corev1.NodeConditionType) int {
	for i, c := range slices.Backward(all) {
		if c.Type == kind {
			return i
		}
	}
	return -1
}

// stamp is a time as an object has it.
func (in *Facts) stamp() metav1.Time { return metav1.NewTime(in.Now) }
