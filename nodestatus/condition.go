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

// maxMessage limits the size of a condition message in bytes. The API server rejects a Node object that is too large, and
// runtimes do not limit their messages.
const maxMessage = 4 << 10

// pressureCondition describes a condition that is False on a healthy node. In its texts, index 0 is for status False and index 1
// for True.
type pressureCondition struct {
	kind                   corev1.NodeConditionType
	reason, message, event [2]string
}

// pressureConditions returns the conditions for memory, disk and PID pressure. They have this order in a new Node object.
func pressureConditions() [3]pressureCondition {
	return [...]pressureCondition{
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

// setConditions sets the four conditions that a node agent owns: memory pressure, disk pressure, PID pressure and Ready. It
// keeps all other conditions.
func (b *builder) setConditions() {
	h, all := &b.in.Health, pressureConditions()
	for i, is := range []bool{h.MemoryPressure, h.DiskPressure, h.PIDPressure} {
		b.setPressure(&all[i], is)
	}
	b.setReady()
}

// setPressure sets the status of a pressure condition.
func (b *builder) setPressure(p *pressureCondition, hasPressure bool) {
	status, which := corev1.ConditionFalse, 0
	if hasPressure {
		status, which = corev1.ConditionTrue, 1
	}
	all := b.node.Status.Conditions
	at := lastConditionIndex(all, p.kind)
	if at < 0 {
		at = len(all)
		b.node.Status.Conditions = append(all, corev1.NodeCondition{Type: p.kind, Status: corev1.ConditionUnknown})
	}
	c := &b.node.Status.Conditions[at]
	c.LastHeartbeatTime = b.now
	// Like the kubelet, reason and message only change with the status.
	if c.Status != status {
		c.Status, c.Reason, c.Message, c.LastTransitionTime = status, p.reason[which], p.message[which], b.now
		b.addStatusEvent(p.event[which])
	}
}

// setReady sets the condition Ready. It changes the transition time only if the status of the condition changes.
func (b *builder) setReady() {
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastHeartbeatTime: b.now, LastTransitionTime: b.now,
	}
	if err := utilerrors.NewAggregate(b.notReadyReasons()); err != nil {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", err.Error()
	}
	ready.Message = truncateMessage(ready.Message)
	if warning := b.in.Health.Warning; warning != nil {
		ready.Message = truncateMessage(fmt.Sprintf("%s. WARNING: %s", ready.Message, warning))
	}
	at := firstConditionIndex(b.node.Status.Conditions, corev1.NodeReady)
	if at < 0 {
		b.node.Status.Conditions = append(b.node.Status.Conditions, ready)
		return
	}
	c := &b.node.Status.Conditions[at]
	if c.Status == ready.Status {
		ready.LastTransitionTime = c.LastTransitionTime
	} else if ready.Status == corev1.ConditionTrue {
		b.addStatusEvent(ReasonReady)
	} else {
		b.addStatusEvent(ReasonNotReady)
	}
	*c = ready
}

// notReadyReasons returns the errors that make the node not ready. Nil elements count as no error.
func (b *builder) notReadyReasons() []error {
	h := &b.in.Health
	errs := append(b.in.Runtime.notReadyReasons(b.in.Now, h.Unhealthy), h.Storage)
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

// truncateMessage returns the first maxMessage bytes of a condition message. Invalid UTF-8 is replaced.
func truncateMessage(s string) string {
	if len(s) > maxMessage {
		s = s[:maxMessage-len("...")] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func firstConditionIndex(all []corev1.NodeCondition, kind corev1.NodeConditionType) int {
	return slices.IndexFunc(all, func(c corev1.NodeCondition) bool { return c.Type == kind })
}

// lastConditionIndex returns the index of the last condition of this type, or -1. The kubelet also uses the last condition
// if a type occurs twice.
func lastConditionIndex(all []corev1.NodeCondition, kind corev1.NodeConditionType) int {
	for i, c := range slices.Backward(all) {
		if c.Type == kind {
			return i
		}
	}
	return -1
}

// timestamp returns Facts.Now as metav1.Time, for the time stamps of conditions.
func (in *Facts) timestamp() metav1.Time { return metav1.NewTime(in.Now) }
