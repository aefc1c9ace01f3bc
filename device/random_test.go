// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
)

// Random pods, lists, faults and crashes of the agent: no device is held by two pods, none is lost when a pod is over, a container that has started
// keeps its devices, and without faults every pod gets its devices or a reason. A crash leaves the record as it was before or after the
// interrupted operation. 100,000 steps with NODEAGENT_SOAK=1.
func TestRandomStepsWithCrashes(t *testing.T) {
	seeds, steps := 20, 500
	if os.Getenv("NODEAGENT_SOAK") == "1" {
		seeds, steps = 100, 1000
	}
	for seed := range seeds {
		m := newModel(t, uint64(seed))
		for range steps {
			m.step()
			m.checkInvariants()
		}
		m.finish()
	}
}

// model is a node under random operations.
type model struct {
	t        *testing.T
	random   *rand.Rand
	opts     device.Options
	a        *device.Allocator
	plugins  map[string]*faultyPlugin
	pods     map[string]device.Pod
	started  map[string]string // the devices of each started container, by "pod/container"
	nextPod  int
	describe string // the last operation, for messages
}

var modelResources = []string{"example.com/a", "example.com/b", "example.com/c"}

func newModel(t *testing.T, seed uint64) *model {
	dir := t.TempDir()
	if shm, err := os.MkdirTemp("/dev/shm", "device"); err == nil { // a sync takes no time there
		dir = shm
		t.Cleanup(func() { _ = os.RemoveAll(shm) })
	}
	m := &model{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), plugins: map[string]*faultyPlugin{}, pods: map[string]device.Pod{}, started: map[string]string{},
		opts: device.Options{Record: filepath.Join(dir, "record"), Kubelet: device.Kubelet{NoWait: true}},
	}
	if m.random.IntN(2) == 0 {
		m.opts.Topology = device.Topology{Policy: device.Policy(m.random.IntN(4)), PodScope: m.random.IntN(2) == 0, Nodes: []device.NUMANode{{ID: 0}, {ID: 1}}}
	}
	m.open()
	return m
}

// open starts a new agent process: all plugins register again.
func (m *model) open() {
	var err error
	m.a, err = device.New(m.opts)
	require.NoError(m.t, err)
	m.plugins = map[string]*faultyPlugin{}
	for _, name := range modelResources {
		m.connect(name)
	}
}

func (m *model) connect(resource string) {
	p := &faultyPlugin{random: m.random, faults: m.random.IntN(2) == 0}
	feed, err := m.a.Connect(resource, "/socket", p)
	require.NoError(m.t, err)
	p.feed = feed
	m.plugins[resource] = p
	m.list(resource, true)
}

// list lists the devices of a resource; with all, all of them are healthy.
func (m *model) list(resource string, all bool) {
	var devices []device.Device
	for i := range 6 {
		if all || m.random.IntN(8) > 0 {
			devices = append(devices, device.Device{ID: fmt.Sprint("d", i), Healthy: all || m.random.IntN(6) > 0, Nodes: device.Mask(i % 3)})
		}
	}
	require.NoError(m.t, m.plugins[resource].feed.Update(devices))
}

// step executes a random operation.
func (m *model) step() {
	resource := modelResources[m.random.IntN(len(modelResources))]
	switch op := m.random.IntN(20); {
	case op < 7:
		m.nextPod++
		m.reserve(m.randomPod(fmt.Sprint("pod", m.nextPod)))
	case op < 11:
		m.start()
	case op < 15:
		m.release()
	case op < 17:
		m.describe = "list " + resource
		m.list(resource, false)
	case op == 17:
		m.describe = "disconnect " + resource
		m.plugins[resource].feed.Close()
		m.connect(resource)
	case op == 18:
		m.crash()
	default:
		m.describe = "faults end"
		for _, p := range m.plugins {
			p.faults = m.random.IntN(2) == 0
		}
	}
}

func (m *model) randomPod(uid string) device.Pod {
	pod := device.Pod{UID: uid, Name: uid, Namespace: "default"}
	for i := range 1 + m.random.IntN(3) {
		c := device.Container{Name: fmt.Sprint("c", i), Limits: map[string]int{}, Kind: device.ContainerKind(m.random.IntN(3))}
		for _, name := range modelResources {
			c.Limits[name] = max(0, m.random.IntN(5)-2)
		}
		pod.Containers = append(pod.Containers, c)
	}
	return pod
}

func (m *model) reserve(pod device.Pod) {
	err := m.a.Reserve(m.t.Context(), pod)
	m.describe = fmt.Sprintf("reserve %+v: %v", pod, err)
	var refusal *device.Refusal
	switch {
	case err == nil:
		m.pods[pod.UID] = pod
		m.checkCounts(pod)
	case errors.As(err, &refusal):
		require.NotContains(m.t, m.holders(), pod.UID, m.describe)
	}
}

// checkCounts checks that each container has as many devices as it limits.
func (m *model) checkCounts(pod device.Pod) {
	for i := range pod.Containers {
		for resource, count := range pod.Containers[i].Limits {
			require.Len(m.t, m.devices(pod.UID, pod.Containers[i].Name, resource), count, m.describe)
		}
	}
}

func (m *model) devices(uid, container, resource string) (ids []string) {
	for _, d := range m.a.Allocations()[uid][container][resource] {
		ids = append(ids, d.ID)
	}
	return ids
}

func (m *model) randomUID() string {
	for uid := range m.pods {
		return uid
	}
	return ""
}

func (m *model) start() {
	pod, ok := m.pods[m.randomUID()]
	if !ok {
		return
	}
	c := pod.Containers[m.random.IntN(len(pod.Containers))]
	_, err := m.a.Start(m.t.Context(), pod.UID, c.Name)
	m.describe = fmt.Sprintf("start %s of %s: %v", c.Name, pod.UID, err)
	if err == nil {
		m.started[pod.UID+"/"+c.Name] = m.held(pod.UID, c.Name)
	}
}

// held describes the devices of a container.
func (m *model) held(uid, container string) (text string) {
	for _, name := range modelResources {
		text += fmt.Sprint(name, m.devices(uid, container, name))
	}
	return text
}

func (m *model) release() {
	uid := m.randomUID()
	m.describe = "release " + uid
	require.NoError(m.t, m.a.Release(uid))
	m.forget(uid)
}

func (m *model) forget(uid string) {
	delete(m.pods, uid)
	for key := range m.started {
		if strings.HasPrefix(key, uid+"/") {
			delete(m.started, key)
		}
	}
}

// crash ends the agent in a reservation or a release. The record is as it was before or after it.
func (m *model) crash() {
	m.describe = "crash"
	before, err := os.ReadFile(m.opts.Record)
	require.NoError(m.t, err)
	m.nextPod++
	pod := m.randomPod(fmt.Sprint("crashed", m.nextPod))
	released := ""
	if m.random.IntN(2) == 0 {
		_ = m.a.Reserve(m.t.Context(), pod) // nobody sees the result
	} else {
		released = m.randomUID()
		require.NoError(m.t, m.a.Release(released))
	}
	if m.random.IntN(2) == 0 {
		require.NoError(m.t, os.WriteFile(m.opts.Record, before, 0o600))
	}
	m.open()
	// The pods still exist: the next process reserves for the new one again, and releases the old one again.
	m.reserve(pod)
	require.NoError(m.t, m.a.Release(released))
	m.forget(released)
}

// holders returns the UIDs of pods that hold a device.
func (m *model) holders() map[string]bool {
	uids := map[string]bool{}
	for _, c := range m.a.Claims() {
		uids[c.PodUID] = true
	}
	return uids
}

func (m *model) checkInvariants() {
	holder := map[string]string{}
	for _, c := range m.a.Claims() {
		for _, d := range c.Devices {
			key := c.Resource + " " + d.ID
			require.True(m.t, holder[key] == "" || holder[key] == c.PodUID, "%s: %s is held by %s and %s", m.describe, key, holder[key], c.PodUID)
			holder[key] = c.PodUID
		}
		require.Contains(m.t, m.pods, c.PodUID, "%s: a pod that is over holds %s", m.describe, c.Resource)
	}
	m.checkContainers()
	for key, devices := range m.started {
		uid, container, _ := strings.Cut(key, "/")
		require.Equal(m.t, devices, m.held(uid, container), "%s: started container %s", m.describe, key)
	}
}

// checkContainers checks that only init containers share their devices with later containers.
func (m *model) checkContainers() {
	for uid, pod := range m.pods {
		for _, resource := range modelResources {
			kept := map[string]string{}
			for _, c := range pod.Containers {
				for _, id := range m.devices(uid, c.Name, resource) {
					require.Empty(m.t, kept[id], "%s: %s of %s is held by container %s, too", m.describe, id, uid, c.Name)
					if c.Kind != device.Init {
						kept[id] = c.Name
					}
				}
			}
		}
	}
}

// finish ends all faults: each pod gets its devices or a reason, and then all devices are free.
func (m *model) finish() {
	for _, p := range m.plugins {
		p.faults = false
	}
	for _, name := range modelResources {
		m.list(name, true)
	}
	for range 10 {
		pod := m.randomPod(fmt.Sprint("last", m.nextPod))
		m.nextPod++
		err := m.a.Reserve(m.t.Context(), pod)
		var refusal *device.Refusal
		require.True(m.t, err == nil || errors.As(err, &refusal), "%v", err)
		if err == nil {
			m.pods[pod.UID] = pod
		}
	}
	for uid := range m.pods {
		require.NoError(m.t, m.a.Release(uid))
	}
	require.Empty(m.t, m.a.Claims())
	if m.opts.Topology.Policy == device.None || m.opts.Topology.Policy == device.BestEffort {
		all := device.Pod{UID: "all", Containers: []device.Container{{Name: "c", Limits: map[string]int{modelResources[0]: 6, modelResources[1]: 6, modelResources[2]: 6}}}}
		require.NoError(m.t, m.a.Reserve(m.t.Context(), all), "all devices are free")
	}
}

// faultyPlugin fails half of its calls if faults is set.
type faultyPlugin struct {
	random *rand.Rand
	feed   device.Feed
	faults bool
}

func (p *faultyPlugin) fail() error {
	if p.faults && p.random.IntN(2) == 0 {
		return errors.New("rpc error")
	}
	return nil
}

func (p *faultyPlugin) Options() device.PluginOptions {
	return device.PluginOptions{Preferred: true, PreStart: true}
}

func (p *faultyPlugin) Preferred(_ context.Context, open, _ []string, count int) ([]string, error) {
	open = slices.Clone(open)
	p.random.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	return open[:min(count, len(open))], p.fail()
}

func (p *faultyPlugin) Allocate(context.Context, []string) (device.Response, error) {
	return device.Response{}, p.fail()
}

func (p *faultyPlugin) PreStart(context.Context, []string) error { return p.fail() }
