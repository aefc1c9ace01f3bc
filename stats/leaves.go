// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"maps"
	"strings"
	"sync"

	"github.com/seed81659283/nodeagent/cgroups"
)

// leafCache caches the cgroup names of containers below the pod cgroups, which do not change while a container runs. Listing them
// costs as much as a sample on cgroup v1, which has a directory per controller. The zero value is ready for use.
type leafCache struct {
	mu    sync.Mutex
	byPod map[cgroups.Path]map[string]string // pod cgroup → container or sandbox ID → cgroup name; the inner maps are read only
}

// podLeaves returns the cached names below a pod cgroup, by container or sandbox ID; nil if it is not cached.
func (l *leafCache) podLeaves(pod cgroups.Path) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byPod[pod]
}

// setLeaves caches the names listed below a pod cgroup, and returns them by container or sandbox ID.
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

// removePod drops the names of a pod cgroup, because a cached one does not exist any more. They are listed again at the next
// sample.
func (l *leafCache) removePod(pod cgroups.Path) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byPod, pod)
}

// retainPods drops the cached cgroup names of all pods except the given ones.
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

// containerID returns the container ID in a cgroup name that a runtime has chosen: ID, crio-ID, or cri-containerd-ID.scope. It is empty
// for the conmon process of CRI-O.
func containerID(leaf string) string {
	name, _ := strings.CutSuffix(leaf, ".scope")
	if strings.HasPrefix(name, "crio-conmon-") {
		return ""
	}
	for _, prefix := range []string{"cri-containerd-", "crio-", "docker-", "libpod-"} {
		if id, ok := strings.CutPrefix(name, prefix); ok {
			return id
		}
	}
	return name
}
