// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// encodeBounded returns r as JSON of at most maxRecord bytes, and omits parts of the pod status if necessary.
func (r *Record) encodeBounded() ([]byte, error) {
	data, err := json.Marshal(r)
	for _, trim := range []func(*corev1.PodStatus){trimMessages, keepSummary} {
		if err != nil || len(data) <= maxRecord || r.Status == nil {
			break
		}
		smaller := *r
		smaller.Status = r.Status.DeepCopy()
		trim(smaller.Status)
		data, err = json.Marshal(&smaller)
	}
	if err == nil && len(data) > maxRecord {
		return nil, fmt.Errorf("record of pod %.512s has %d bytes, the limit is %d", r.Pod, len(data), maxRecord)
	}
	return data, err
}

// trimMessages removes from status the messages and lists that the agent does not need after a restart. It keeps the
// container states and the conditions.
func trimMessages(status *corev1.PodStatus) {
	for _, all := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range all {
			c := &all[i]
			c.AllocatedResources, c.Resources, c.VolumeMounts, c.AllocatedResourcesStatus, c.User = nil, nil, nil, nil, nil
			for _, s := range []*corev1.ContainerState{&c.State, &c.LastTerminationState} {
				if s.Waiting != nil {
					s.Waiting.Message = ""
				}
				if s.Terminated != nil {
					s.Terminated.Message = ""
				}
			}
		}
	}
	for i := range status.Conditions {
		status.Conditions[i].Message = ""
	}
}

// keepSummary removes all fields of status except phase, start time, QoS class and reason.
func keepSummary(status *corev1.PodStatus) {
	*status = corev1.PodStatus{Phase: status.Phase, StartTime: status.StartTime, QOSClass: status.QOSClass, Reason: status.Reason}
}
