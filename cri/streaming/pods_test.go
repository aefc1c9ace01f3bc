// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/streaming"
)

// listedPods is a list of pods as a pleg.Generator provides it.
type listedPods struct {
	mu     sync.Mutex // guards all fields
	byUID  map[string]cri.Pod
	err    error // error of the last inspection
	notify []func(uids ...string)
}

func (p *listedPods) Notify(fn func(uids ...string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notify = append(p.notify, fn)
}

func (p *listedPods) Get(uid string) (cri.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byUID[uid], p.err
}

func (p *listedPods) Pods() ([]cri.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.byUID)), p.err
}

// change replaces the pods and reports that pod uid has changed.
func (p *listedPods) change(uid string, err error, pods ...cri.Pod) {
	p.mu.Lock()
	p.err, p.byUID = err, map[string]cri.Pod{}
	for i := range pods {
		p.byUID[pods[i].UID] = pods[i]
	}
	listeners := slices.Clone(p.notify)
	p.mu.Unlock()
	for _, notify := range listeners {
		notify(uid)
	}
}

// podWith returns a pod whose container has its UID and "/c" as ID.
func podWith(uid string, state cri.ContainerState) cri.Pod {
	return cri.Pod{
		PodIdentity: cri.PodIdentity{UID: uid},
		Sandboxes:   []cri.Sandbox{{ID: uid + "/sandbox", State: cri.SandboxReady}},
		Containers:  []cri.Container{{ID: uid + "/c", State: state}},
	}
}

func TestSessionClosedWhenItsContainerStops(t *testing.T) {
	running, other := podWith("u1", cri.ContainerRunning), podWith("u2", cri.ContainerRunning)
	for _, test := range []struct {
		name    string
		changed string
		err     error
		pods    []cri.Pod
		ends    bool
	}{
		{"the container has exited", "u1", nil, []cri.Pod{podWith("u1", cri.ContainerExited), other}, true},
		{"the pod was removed", "u1", nil, []cri.Pod{other}, true},
		{"the container was replaced", "u1", nil, []cri.Pod{{PodIdentity: running.PodIdentity, Containers: []cri.Container{{ID: "u1/c2", State: cri.ContainerRunning}}}, other}, true},
		{"another container of the pod has exited", "u1", nil, []cri.Pod{{
			PodIdentity: running.PodIdentity,
			Containers:  []cri.Container{{ID: "u1/c", State: cri.ContainerRunning}, {ID: "u1/c2", State: cri.ContainerExited}},
		}, other}, false},
		{"another pod was removed", "u2", nil, []cri.Pod{running}, false},
		{"the runtime hangs", "u1", errors.New("no runtime"), []cri.Pod{podWith("u1", cri.ContainerExited), other}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods := &listedPods{}
			pods.change("", nil, running, other)
			r := newTestNode(t, "runner", streaming.Options{Pods: pods})
			b := r.startSession(t, "WebSocket v5.channel.k8s.io", "u1/c", "hang")
			require.Equal(t, streaming.Target{ID: "u1/c", PodUID: "u1"}, r.Streams()[0].Target)
			pods.change(test.changed, test.err, test.pods...)
			if test.ends {
				b.wait(t)
				require.Contains(t, b.fault, "session was closed: the container or the pod has ended")
			} else {
				require.Len(t, r.Streams(), 1)
				b.cancel()
			}
			awaitNoSessions(t, r)
			require.Equal(t, test.ends, errors.Is(r.sessionErrors()[0], streaming.ErrSessionClosed))
		})
	}
}

func TestPodUIDOfSessionFoundByPods(t *testing.T) {
	for _, test := range []struct {
		name, id, pod string
		podOf         func(id string) string
	}{
		{"container", "u1/c", "u1", nil},
		{"sandbox", "u1/sandbox", "u1", nil},
		{"container that is not listed yet", "u3/c", "", nil},
		{"PodOf in the options", "u1/c", "mine", func(string) string { return "mine" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods := &listedPods{}
			pods.change("", nil, podWith("u1", cri.ContainerRunning), podWith("u2", cri.ContainerRunning))
			r := newTestNode(t, "runner", streaming.Options{Pods: pods, PodOf: test.podOf})
			b := r.startSession(t, "WebSocket v5.channel.k8s.io", test.id, "hang")
			require.Equal(t, streaming.Target{ID: test.id, PodUID: test.pod}, r.Streams()[0].Target)
			b.cancel()
			awaitNoSessions(t, r)
		})
	}
}
