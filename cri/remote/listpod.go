// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// ListPod returns what [Client.List] has of the pod with this UID: the sandboxes that were run for it, and the containers
// in them.
//
// The protocol has no filter for that, only one for labels. Where the sandboxes carry the label [cri.LabelPodUID], as
// those of the kubelet and of package podspec do, three calls are enough, none of which lists more than the pod; a pod
// without such sandboxes, which nobody knows or crictl has made, takes a list of all sandboxes. A pod of which some
// sandboxes carry the label and some do not is listed by the former.
func (c *Client) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	selector := map[string]string{cri.LabelPodUID: uid}
	s, err := c.list(ctx, uid,
		&v1.ListPodSandboxRequest{Filter: &v1.PodSandboxFilter{LabelSelector: selector}},
		&v1.ListContainersRequest{Filter: &v1.ContainerFilter{LabelSelector: selector}})
	if err != nil {
		return s.Pod(uid), err
	}
	if err := c.addSandboxes(ctx, uid, &s); err != nil {
		return cri.Pod{}, err
	}
	if err := c.addContainers(ctx, uid, &s); err != nil {
		return cri.Pod{}, err
	}
	join(s)
	return s.Pod(uid), nil
}

// addSandboxes adds the sandboxes that do not carry the label: those of the pod, and those of containers that do.
func (c *Client) addSandboxes(ctx context.Context, uid string, s *cri.Snapshot) error {
	if !slices.ContainsFunc(s.Sandboxes, func(sb cri.Sandbox) bool { return sb.Pod.UID == uid }) {
		err := c.addListed(ctx, uid, s, nil, func(sb *cri.Sandbox) bool { return sb.Pod.UID == uid })
		// A list that does not fit into a message: pods are then known by their label alone.
		if err != nil && status.Code(err) != codes.ResourceExhausted {
			return err
		}
	}
	asked := make(map[string]bool)
	for _, container := range s.Containers {
		id := container.SandboxID
		if asked[id] || hasSandbox(s, id) {
			continue
		}
		asked[id] = true // and gone, as a rule
		err := c.addListed(ctx, uid, s, &v1.PodSandboxFilter{Id: id}, func(sb *cri.Sandbox) bool { return sb.ID == id })
		if err != nil {
			return err
		}
	}
	return nil
}

// addListed adds the sandboxes that pass a filter and are wanted.
func (c *Client) addListed(
	ctx context.Context, uid string, s *cri.Snapshot, filter *v1.PodSandboxFilter, want func(*cri.Sandbox) bool,
) error {
	r, err := call(ctx, c, op{name: "ListPodSandbox", id: uid}, c.runtime.ListPodSandbox,
		&v1.ListPodSandboxRequest{Filter: filter})
	for _, p := range r.GetItems() {
		if sb := cripb.DecodeSandbox(p); want(&sb) && !hasSandbox(s, sb.ID) {
			s.Sandboxes = append(s.Sandboxes, sb)
		}
	}
	return err
}

func hasSandbox(s *cri.Snapshot, id string) bool {
	return slices.ContainsFunc(s.Sandboxes, func(sb cri.Sandbox) bool { return sb.ID == id })
}

// addContainers adds what is in the sandboxes of the pod and does not carry its label.
func (c *Client) addContainers(ctx context.Context, uid string, s *cri.Snapshot) error {
	known := make(map[string]bool, len(s.Containers))
	for i := range s.Containers {
		known[s.Containers[i].ID] = true
	}
	for i := range s.Sandboxes {
		sb := &s.Sandboxes[i]
		if sb.Pod.UID != uid {
			continue
		}
		r, err := call(ctx, c, op{name: "ListContainers", id: uid}, c.runtime.ListContainers,
			&v1.ListContainersRequest{Filter: &v1.ContainerFilter{PodSandboxId: sb.ID}})
		if err != nil {
			return err
		}
		for _, p := range r.GetContainers() {
			if container := cripb.DecodeContainer(p); container.SandboxID == sb.ID && !known[container.ID] {
				known[container.ID] = true
				s.Containers = append(s.Containers, container)
			}
		}
	}
	return nil
}
