// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// kind is what an ID is of, as errors have it.
type kind string

const (
	sandboxID   kind = "sandbox"
	containerID kind = "container"
)

// maxMade is how many IDs are remembered that were made since the runtime was listed.
const maxMade = 1000

// index knows the IDs that the runtime had when it was last listed, and those made since. It spares calls with an ID in
// full, as the kubelet makes them, a list of everything. It may know IDs of what is gone.
type index struct {
	mu   sync.Mutex // guards what follows
	ids  map[kind]map[string]bool
	made int
}

// knows reports whether an ID is known in full.
func (x *index) knows(k kind, id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ids[k][id]
}

// put replaces what is known. The maps belong to the index then.
func (x *index) put(ids map[kind]map[string]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ids, x.made = ids, 0
}

// add adds an ID that was just made, if the runtime has been listed and that is not long ago.
func (x *index) add(k kind, id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.made++; x.made > maxMade {
		x.ids = nil
	}
	if x.ids != nil {
		x.ids[k][id] = true
	}
}

// expandPrefixes puts the ID in full in place of each prefix in a request, before its handler sees it.
func (s *Server) expandPrefixes(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	for _, f := range idFields(request) {
		full, err := s.expand(ctx, f.kind, *f.id)
		if err != nil {
			return nil, err
		}
		*f.id = full
	}
	for _, f := range filterFields(request) {
		if full, err := s.expand(ctx, f.kind, *f.id); err == nil {
			*f.id = full // else nothing passes, as in containerd
		}
	}
	answer, err := handle(ctx, request)
	if err == nil {
		switch a := answer.(type) {
		case *v1.RunPodSandboxResponse:
			s.index.add(sandboxID, a.GetPodSandboxId())
		case *v1.CreateContainerResponse:
			s.index.add(containerID, a.GetContainerId())
		}
	}
	return answer, err
}

// expand returns the ID that begins with a prefix, which may be the whole of it. Without one, it returns the prefix:
// the runtime says what it makes of an ID that it does not know. So it does when it cannot be listed.
func (s *Server) expand(ctx context.Context, k kind, prefix string) (string, error) {
	if prefix == "" || s.index.knows(k, prefix) {
		return prefix, nil
	}
	snapshot, err := s.runtime.List(ctx)
	if err != nil {
		return prefix, nil
	}
	ids := idsOf(snapshot)
	full, err := unique(k, ids[k], prefix)
	s.index.put(ids)
	return full, err
}

// idsOf returns the IDs of everything.
func idsOf(snapshot cri.Snapshot) map[kind]map[string]bool {
	ids := map[kind]map[string]bool{
		sandboxID:   make(map[string]bool, len(snapshot.Sandboxes)),
		containerID: make(map[string]bool, len(snapshot.Containers)),
	}
	for i := range snapshot.Sandboxes {
		ids[sandboxID][snapshot.Sandboxes[i].ID] = true
	}
	for i := range snapshot.Containers {
		ids[containerID][snapshot.Containers[i].ID] = true
	}
	return ids
}

// unique returns the one ID that begins with a prefix, the prefix where there is none, and an error where there are
// several and none is the prefix itself.
func unique(k kind, ids map[string]bool, prefix string) (string, error) {
	if ids[prefix] {
		return prefix, nil
	}
	full, found := prefix, 0
	for id := range ids {
		if strings.HasPrefix(id, prefix) {
			full = id
			found++
		}
	}
	if found > 1 {
		return "", status.Errorf(codes.InvalidArgument, "%s ID %.64q: %d IDs begin so: give more of it", k, prefix, found)
	}
	return full, nil
}

// idField is a place in a request for an ID.
type idField struct {
	kind kind
	id   *string
}

// idFields returns the places for IDs of objects that must be there already. A handler of a request that is not here
// sees IDs as the client wrote them.
func idFields(request any) []idField {
	switch q := request.(type) {
	case *v1.StopPodSandboxRequest:
		return []idField{{sandboxID, &q.PodSandboxId}}
	case *v1.RemovePodSandboxRequest:
		return []idField{{sandboxID, &q.PodSandboxId}}
	case *v1.PodSandboxStatusRequest:
		return []idField{{sandboxID, &q.PodSandboxId}}
	case *v1.PodSandboxStatsRequest:
		return []idField{{sandboxID, &q.PodSandboxId}}
	case *v1.UpdatePodSandboxResourcesRequest:
		return []idField{{sandboxID, &q.PodSandboxId}}
	case *v1.PortForwardRequest:
		return []idField{{sandboxID, &q.PodSandboxId}}
	case *v1.CreateContainerRequest:
		return []idField{{sandboxID, &q.PodSandboxId}}
	case *v1.StartContainerRequest:
		return []idField{{containerID, &q.ContainerId}}
	case *v1.StopContainerRequest:
		return []idField{{containerID, &q.ContainerId}}
	case *v1.RemoveContainerRequest:
		return []idField{{containerID, &q.ContainerId}}
	case *v1.ContainerStatusRequest:
		return []idField{{containerID, &q.ContainerId}}
	case *v1.ContainerStatsRequest:
		return []idField{{containerID, &q.ContainerId}}
	case *v1.UpdateContainerResourcesRequest:
		return []idField{{containerID, &q.ContainerId}}
	case *v1.ReopenContainerLogRequest:
		return []idField{{containerID, &q.ContainerId}}
	case *v1.ExecSyncRequest:
		return []idField{{containerID, &q.ContainerId}}
	case *v1.ExecRequest:
		return []idField{{containerID, &q.ContainerId}}
	case *v1.AttachRequest:
		return []idField{{containerID, &q.ContainerId}}
	}
	return nil
}

// filterFields returns the places for IDs in the filters of list calls.
func filterFields(request any) []idField {
	switch q := request.(type) {
	case *v1.ListPodSandboxRequest:
		if f := q.GetFilter(); f != nil {
			return []idField{{sandboxID, &f.Id}}
		}
	case *v1.ListPodSandboxStatsRequest:
		if f := q.GetFilter(); f != nil {
			return []idField{{sandboxID, &f.Id}}
		}
	case *v1.ListContainersRequest:
		if f := q.GetFilter(); f != nil {
			return []idField{{containerID, &f.Id}, {sandboxID, &f.PodSandboxId}}
		}
	case *v1.ListContainerStatsRequest:
		if f := q.GetFilter(); f != nil {
			return []idField{{containerID, &f.Id}, {sandboxID, &f.PodSandboxId}}
		}
	}
	return nil
}
