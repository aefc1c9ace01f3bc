// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"maps"
	"strings"
	"sync"

	"github.com/seed81659283/nodeagent/cgroups"
)

// leaves remembers the names of the cgroups in the cgroups of pods, which stay as they are for as long as a container runs. On v1
// there is a directory to list for each controller, and all of them together cost as much as a sample. The zero value is ready.
type leaves struct {
	mu  sync.Mutex
	pod map[cgroups.Path]map[string]string // by container or sandbox; these maps are never changed
}

// of returns what is remembered of a pod, nil where nothing is.
func (l *leaves) of(pod cgroups.Path) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pod[pod]
}

// set remembers the names that were listed in the cgroup of a pod, and returns them by container or sandbox.
func (l *leaves) set(pod cgroups.Path, names []string) map[string]string {
	byID := make(map[string]string, len(names))
	for _, leaf := range names {
		if id := containerID(leaf); id != "" {
			byID[id] = leaf
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pod == nil {
		l.pod = make(map[cgroups.Path]map[string]string)
	}
	l.pod[pod] = byID
	return byID
}

// forget has the cgroup of a pod listed anew, of which one that was remembered is not there.
func (l *leaves) forget(pod cgroups.Path) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pod, pod)
}

// keep forgets all but some pods.
func (l *leaves) keep(pods map[string]cgroups.Path) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pod) <= len(pods) {
		return
	}
	there := make(map[cgroups.Path]bool, len(pods))
	for _, path := range pods {
		there[path] = true
	}
	maps.DeleteFunc(l.pod, func(pod cgroups.Path, _ map[string]string) bool { return !there[pod] })
}

// containerID returns the container whose cgroup has a name, which is what a runtime made of the ID: ID, crio-ID, or
// cri-containerd-ID.scope. It is empty for what is no container, such as the monitor of one.
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
