// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// ListPod returns the sandboxes of the pod with this UID and the containers in them. It selects them by the label
// [cri.LabelPodUID], which the kubelet and package podspec set.
//
// A pod without this label, for example of crictl, is only found after [Client.List] has returned it. For such a pod, ListPod
// lists all pods, unless the list is too large for a message.
func (c *Client) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	if c.mislabelled.contains(uid) {
		s, err := c.List(ctx)
		if !errors.Is(err, cri.ErrTooLarge) {
			return s.Pod(uid), err
		}
	}
	selector := map[string]string{cri.LabelPodUID: uid}
	s, err := c.listFiltered(ctx, uid,
		&v1.ListPodSandboxRequest{Filter: &v1.PodSandboxFilter{LabelSelector: selector}},
		&v1.ListContainersRequest{Filter: &v1.ContainerFilter{LabelSelector: selector}})
	return s.Pod(uid), err
}

// mislabelled contains the UIDs of pods that cannot be listed by label: one of their objects lacks the label, or an object of
// another pod has it.
type mislabelled struct {
	mu   sync.Mutex // guards uids
	uids map[string]bool
}

// contains reports whether m has this pod UID: a query by the UID label would not return the pod, or not only its objects.
func (m *mislabelled) contains(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uids[uid]
}

// updateFrom replaces the UIDs in m by those of the pods in a complete snapshot that cannot be listed by their label.
func (m *mislabelled) updateFrom(snapshot *cri.Snapshot) {
	var uids map[string]bool
	see := func(uid string, labels map[string]string) {
		label := labels[cri.LabelPodUID]
		if label == uid {
			return
		}
		if uids == nil {
			uids = make(map[string]bool)
		}
		uids[uid], uids[label] = true, true
	}
	for i := range snapshot.Sandboxes {
		see(snapshot.Sandboxes[i].Pod.UID, snapshot.Sandboxes[i].Labels)
	}
	for i := range snapshot.Containers {
		see(snapshot.Containers[i].PodUID, snapshot.Containers[i].Labels)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uids = uids
}
