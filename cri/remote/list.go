// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"sync"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// List returns every sandbox and container of the runtime, without details.
func (c *Client) List(ctx context.Context) (cri.Snapshot, error) {
	s, err := c.listFiltered(ctx, "", &v1.ListPodSandboxRequest{}, &v1.ListContainersRequest{})
	if err == nil {
		c.mislabelled.updateFrom(&s)
	}
	return s, err
}

// listFiltered returns the sandboxes and containers of two concurrent list requests. The ID in errors may be empty.
func (c *Client) listFiltered(
	ctx context.Context, id string, sandboxes *v1.ListPodSandboxRequest, containers *v1.ListContainersRequest,
) (cri.Snapshot, error) {
	s := cri.Snapshot{Time: time.Now()}
	var (
		wg           sync.WaitGroup
		sandboxErr   error
		containerErr error
	)
	wg.Go(func() {
		var r *v1.ListPodSandboxResponse
		r, sandboxErr = invoke(ctx, c, callInfo{name: "ListPodSandbox", id: id}, c.runtime.ListPodSandbox, sandboxes)
		s.Sandboxes = decodeList(r.GetItems(), cripb.DecodeSandbox)
	})
	r, containerErr := invoke(ctx, c, callInfo{name: "ListContainers", id: id}, c.runtime.ListContainers, containers)
	s.Containers = decodeList(r.GetContainers(), cripb.DecodeContainer)
	wg.Wait()
	if err := cmp.Or(sandboxErr, containerErr); err != nil {
		return cri.Snapshot{}, err
	}
	assignPodUIDs(s)
	return s, nil
}

func decodeList[P, S any](in []P, decode func(P) S) []S {
	out := make([]S, len(in))
	for i, p := range in {
		out[i] = decode(p)
	}
	return out
}

// assignPodUIDs sets the PodUID of each container to that of its sandbox, if the sandbox is listed.
func assignPodUIDs(snapshot cri.Snapshot) {
	uids := make(map[string]string, len(snapshot.Sandboxes))
	for i := range snapshot.Sandboxes {
		uids[snapshot.Sandboxes[i].ID] = snapshot.Sandboxes[i].Pod.UID
	}
	for i := range snapshot.Containers {
		if uid := uids[snapshot.Containers[i].SandboxID]; uid != "" {
			snapshot.Containers[i].PodUID = uid
		}
	}
}
