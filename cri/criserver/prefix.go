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

// idKind is the kind of object of an ID, as shown in errors.
type idKind string

const (
	sandboxID   idKind = "sandbox"
	containerID idKind = "container"
)

// maxAdded is the number of IDs that may be added to an idCache before the runtime is listed again.
const maxAdded = 1000

// idCache contains the IDs that the runtime had at the last List, and those created since. Calls with a full ID, such as the
// kubelet's, then need no List. It may contain IDs of removed objects.
type idCache struct {
	mu    sync.Mutex // guards the fields below
	ids   map[idKind]map[string]bool
	added int
}

// contains reports whether id, a full ID, is cached.
func (x *idCache) contains(kind idKind, id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ids[kind][id]
}

// replaceIDs replaces all cached IDs. The caller must not modify the map afterwards.
func (x *idCache) replaceIDs(ids map[idKind]map[string]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ids, x.added = ids, 0
}

// addID caches the ID of a new sandbox or container, if the cache is filled.
func (x *idCache) addID(kind idKind, id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.added++; x.added > maxAdded {
		x.ids = nil // so that IDs of removed objects do not accumulate
	}
	if x.ids != nil {
		x.ids[kind][id] = true
	}
}

// expandPrefixes is a gRPC interceptor that replaces abbreviated sandbox and container IDs in a request by the full IDs.
func (s *Server) expandPrefixes(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	for _, f := range idFields(request) {
		full, err := s.expandPrefix(ctx, f.kind, *f.id)
		if err != nil {
			return nil, err
		}
		*f.id = full
	}
	for _, f := range filterFields(request) {
		if full, err := s.expandPrefix(ctx, f.kind, *f.id); err == nil {
			*f.id = full // otherwise the filter matches nothing, as in containerd
		}
	}
	answer, err := handle(ctx, request)
	if err == nil {
		switch a := answer.(type) {
		case *v1.RunPodSandboxResponse:
			s.idCache.addID(sandboxID, a.GetPodSandboxId())
		case *v1.CreateContainerResponse:
			s.idCache.addID(containerID, a.GetContainerId())
		}
	}
	return answer, err
}

// expandPrefix returns the full ID that begins with prefix, or an error if there are several.
func (s *Server) expandPrefix(ctx context.Context, kind idKind, prefix string) (string, error) {
	if prefix == "" || s.idCache.contains(kind, prefix) {
		return prefix, nil
	}
	snapshot, err := s.runtime.List(ctx)
	if err != nil {
		return prefix, nil
	}
	// an unknown prefix is returned unchanged: the runtime reports it
	ids := collectIDs(snapshot)
	full, err := matchPrefix(kind, ids[kind], prefix)
	s.idCache.replaceIDs(ids)
	return full, err
}

// collectIDs returns the IDs of the sandboxes and containers in snapshot.
func collectIDs(snapshot cri.Snapshot) map[idKind]map[string]bool {
	ids := map[idKind]map[string]bool{
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

// matchPrefix returns the ID that begins with prefix, or prefix if there is none, or an error if there are several.
func matchPrefix(kind idKind, ids map[string]bool, prefix string) (string, error) {
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
		return "", status.Errorf(codes.InvalidArgument, "%s ID %.64q is an ambiguous prefix of %d IDs: give more characters", kind, prefix, found)
	}
	return full, nil
}

// idField points to the field of a request that contains an ID.
type idField struct {
	kind idKind
	id   *string
}

// idFields returns the fields of a request that contain the ID of an existing sandbox or container.
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

// filterFields returns the ID fields in the filter of a list request. It returns nil for other requests and without a
// filter.
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
