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

// ListPod returns what [Client.List] has of the pod with this UID: the sandboxes that were run for it, and the containers
// in them.
//
// The protocol has no filter for that, only one for labels. Sandboxes and containers of the kubelet and of package podspec
// carry the label [cri.LabelPodUID], and two calls that list nothing else are enough. Of those that others have made, such
// as crictl, the last List knows: their pods take a list of everything, if that fits into a message. A pod whose objects
// lack the label is not found before it was listed once.
func (c *Client) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	if c.mislabelled.has(uid) {
		s, err := c.List(ctx)
		if !errors.Is(err, cri.ErrTooLarge) {
			return s.Pod(uid), err
		}
	}
	selector := map[string]string{cri.LabelPodUID: uid}
	s, err := c.list(ctx, uid,
		&v1.ListPodSandboxRequest{Filter: &v1.PodSandboxFilter{LabelSelector: selector}},
		&v1.ListContainersRequest{Filter: &v1.ContainerFilter{LabelSelector: selector}})
	return s.Pod(uid), err
}

// mislabelled are the UIDs of pods that cannot be listed by their label: one of their objects does not carry it, or one of
// another pod does.
type mislabelled struct {
	mu   sync.Mutex // guards uids
	uids map[string]bool
}

func (m *mislabelled) has(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uids[uid]
}

// learn replaces what is known by what a list of everything shows.
func (m *mislabelled) learn(s *cri.Snapshot) {
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
	for i := range s.Sandboxes {
		see(s.Sandboxes[i].Pod.UID, s.Sandboxes[i].Labels)
	}
	for i := range s.Containers {
		see(s.Containers[i].PodUID, s.Containers[i].Labels)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uids = uids
}
