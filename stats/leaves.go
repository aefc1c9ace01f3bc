// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"maps"
	"strings"
	"sync"

	"github.com/seed81659283/nodeagent/cgroups"
)

// leafCache caches the names of the cgroups in each pod cgroup. A name does not change while its container runs. Listing the
// names costs as much as a sample on cgroup v1, which has one directory per controller. The zero value is ready for use.
type leafCache struct {
	mu    sync.Mutex
	byPod map[cgroups.Path]map[string]string // pod cgroup → container or sandbox ID → cgroup name; the inner maps are read only
}

// podLeaves returns the cached cgroup names of a pod's containers and sandboxes, by their IDs. If none are cached, it
// returns nil.
func (l *leafCache) podLeaves(pod cgroups.Path) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byPod[pod]
}

// setLeaves caches names, the names of the cgroups in the pod cgroup pod. It returns a map from container or sandbox IDs to
// these names.
func (l *leafCache) setLeaves(pod cgroups.Path, names []string) map[string]string {
	byID := make(map[string]string, len(names))
	for _, leaf := range names {
		if id := containerID(leaf); id != "" {
			byID[id] = leaf
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byPod == nil {
		l.byPod = make(map[cgroups.Path]map[string]string)
	}
	l.byPod[pod] = byID
	return byID
}

// removePod removes the cached names of a pod, because one of its cgroups was not found. The next sample lists the cgroups
// again.
func (l *leafCache) removePod(pod cgroups.Path) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byPod, pod)
}

// retainPods removes the cached names of all pods that are missing in pods.
func (l *leafCache) retainPods(pods map[string]cgroups.Path) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byPod) <= len(pods) {
		return
	}
	there := make(map[cgroups.Path]bool, len(pods))
	for _, path := range pods {
		there[path] = true
	}
	maps.DeleteFunc(l.byPod, func(pod cgroups.Path, _ map[string]string) bool { return !there[pod] })
}

// containerID returns the ID of a container or sandbox from the name of its cgroup, such as ID, crio-ID or
// cri-containerd-ID.scope.
func containerID(leaf string) string {
	name, _ := strings.CutSuffix(leaf, ".scope")
	if strings.HasPrefix(name, "crio-conmon-") {
		return "" // the cgroup of a helper process of CRI-O
	}
	for _, prefix := range []string{"cri-containerd-", "crio-", "docker-", "libpod-"} {
		if id, ok := strings.CutPrefix(name, prefix); ok {
			return id
		}
	}
	return name
}
