// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestScripts executes the scripts in testdata in virtual time. A script starts with an allocator that keeps a record. Its commands:
//
//	options policy=restricted machine=2 scope=pod foreign=R kubelet     an allocator with other options (first line)
//	connect P R [preferred] [prestart]     plugin P registers for the resource example.com/R, on a socket of its name
//	list P a b@0 c@0,1 !d                  P lists devices: b is on NUMA node 0, d is unhealthy
//	disconnect P                           the connection to P ends
//	prefer P c d                           P prefers these devices
//	answer P env=A:1 mount=/a:/b node=/dev/x cdi=v/c=n     how P answers Allocate
//	fault P allocate|preferred|prestart TEXT|hang|none     how P fails
//	reserve POD [init/|sidecar/]C:R=2,S=1 ...     reserves the devices of a pod with these containers; a call that has not returned is reported later
//	start POD C                            what the config of a container gets
//	release POD, retain POD ...            frees the devices of pods
//	health POD C                           health of the container's devices
//	resources                              capacity/allocatable of each resource
//	claims, sockets                        what is allocated, and which sockets are remembered
//	restart [damaged|lost]                 a new allocator with the record, a damaged one, or none
//	running POD C NOTE-FROM-START          a container exists in the runtime (for a restart without record)
//	wait 4m                                time passes
func TestScripts(t *testing.T) {
	script.Run(t, "testdata/*.txtar", func(t *testing.T, text string) (out string) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			out = script.Lines(text, "  ", w.do)
			w.stop()
		})
		return out
	})
}

// world is the state of a script.
type world struct {
	t       *testing.T
	opts    device.Options
	a       *device.Allocator
	stop    func()
	plugins map[string]*scriptedPlugin
	notes   map[string]string // annotation of each started container, by "POD C"
	running []device.RunningContainer

	mu     sync.Mutex // guards events
	events []string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, plugins: map[string]*scriptedPlugin{}, notes: map[string]string{}}
	w.opts.Record = filepath.Join(t.TempDir(), "devices")
	w.opts.Hooks.CapacityChanged = func() { w.report("capacity changed") }
	w.opts.Hooks.PodsChanged = func(uids []string) { w.report("pods changed: " + strings.Join(uids, " ")) }
	w.opts.Hooks.Error = func(err error) {
		w.report("error: " + strings.ReplaceAll(err.Error(), filepath.Dir(w.opts.Record), "DIR"))
	}
	w.opts.Running = func(context.Context) ([]device.RunningContainer, error) { return w.running, nil }
	w.open()
	return w
}

// open replaces the allocator.
func (w *world) open() {
	if w.stop != nil {
		w.stop()
	}
	var err error
	w.a, err = device.New(w.opts)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error)
	go func(a *device.Allocator) { done <- a.Run(ctx) }(w.a)
	w.stop = func() {
		cancel()
		require.NoError(w.t, <-done)
		synctest.Wait()
	}
	synctest.Wait()
}

func (w *world) report(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event)
}

// do executes one command and writes its output.
func (w *world) do(out *strings.Builder, words []string) {
	args := words[1:]
	command := map[string]func([]string) []string{
		"options": w.setOptions, "connect": w.connect, "list": w.list, "disconnect": w.disconnect, "prefer": w.prefer, "answer": w.answer,
		"fault": w.fault, "reserve": w.reserve, "start": w.start, "release": w.release, "retain": w.retain, "health": w.health, "resources": w.resources,
		"claims": w.claims, "sockets": w.sockets, "restart": w.restart, "running": w.run, "wait": w.wait,
	}[words[0]]
	require.NotNil(w.t, command, words[0])
	lines := command(args)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range append(lines, w.events...) {
		fmt.Fprintln(out, "  "+line)
	}
	w.events = nil
}

func (w *world) setOptions(args []string) []string {
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "policy":
			for p := device.None; p <= device.SingleNUMANode; p++ {
				if p.String() == value {
					w.opts.Topology.Policy = p
				}
			}
		case "machine":
			nodes, err := strconv.Atoi(value)
			require.NoError(w.t, err)
			for id := range nodes {
				w.opts.Topology.Nodes = append(w.opts.Topology.Nodes, device.NUMANode{ID: id})
			}
		case "scope":
			w.opts.Topology.PodScope = value == "pod"
		case "foreign":
			w.opts.IsForeign = func(resource string) bool { return resource == "example.com/"+value }
		case "kubelet":
			w.opts.Kubelet = device.Kubelet{NoWait: true, RunWithout: true, IgnoreConflicts: true, AssumeHealthy: true}
		default:
			w.t.Fatalf("unknown option %s", arg)
		}
	}
	w.open()
	return nil
}

func (w *world) connect(args []string) []string {
	p := &scriptedPlugin{faults: map[string]string{}}
	p.options = device.PluginOptions{Preferred: slices.Contains(args, "preferred"), PreStart: slices.Contains(args, "prestart")}
	if before := w.plugins[args[0]]; before != nil {
		p.response = before.response
	}
	feed, err := w.a.Connect("example.com/"+args[1], "/"+args[0]+".sock", p)
	if err != nil {
		return []string{err.Error()}
	}
	p.feed, p.log = feed, w.report
	p.name, w.plugins[args[0]] = args[0], p
	return nil
}

func (w *world) list(args []string) []string {
	var devices []device.Device
	for _, word := range args[1:] {
		id, nodes, _ := strings.Cut(word, "@")
		d := device.Device{ID: strings.TrimPrefix(id, "!"), Healthy: !strings.HasPrefix(id, "!")}
		for n := range strings.SplitSeq(nodes, ",") {
			if n != "" {
				number, err := strconv.Atoi(n)
				require.NoError(w.t, err)
				d.Nodes |= 1 << number
			}
		}
		devices = append(devices, d)
	}
	if err := w.plugins[args[0]].feed.Update(devices); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func (w *world) disconnect(args []string) []string {
	w.plugins[args[0]].feed.Close()
	return nil
}

func (w *world) prefer(args []string) []string {
	w.plugins[args[0]].preferred = args[1:]
	return nil
}

func (w *world) answer(args []string) []string {
	r := device.Response{Env: map[string]string{}, Annotations: map[string]string{}}
	for _, arg := range args[1:] {
		kind, value, _ := strings.Cut(arg, "=")
		first, second, _ := strings.Cut(value, ":")
		switch kind {
		case "env":
			r.Env[first] = second
		case "annotation":
			r.Annotations[first] = second
		case "mount":
			r.Mounts = append(r.Mounts, cri.Mount{ContainerPath: first, HostPath: second, ReadOnly: true})
		case "node":
			r.Devices = append(r.Devices, cri.Device{ContainerPath: first, HostPath: first, Permissions: "rw"})
		case "cdi":
			r.CDIDevices = append(r.CDIDevices, value)
		}
	}
	w.plugins[args[0]].response = r
	return nil
}

func (w *world) fault(args []string) []string {
	w.plugins[args[0]].setFault(args[1], strings.Join(args[2:], " "))
	return nil
}

// reserve reports the outcome of Reserve when it returns.
func (w *world) reserve(args []string) []string {
	pod := device.Pod{UID: args[0], Namespace: "default", Name: args[0]}
	for _, word := range args[1:] {
		name, limits, _ := strings.Cut(word, ":")
		c := device.Container{Limits: map[string]int{}}
		switch kind, rest, found := strings.Cut(name, "/"); {
		case !found:
			c.Name = name
		case kind == "init":
			c.Name, c.Kind = rest, device.Init
		case kind == "sidecar":
			c.Name, c.Kind = rest, device.Sidecar
		}
		for limit := range strings.SplitSeq(limits, ",") {
			resource, count, _ := strings.Cut(limit, "=")
			number, err := strconv.Atoi(count)
			require.NoError(w.t, err)
			c.Limits["example.com/"+resource] = number
		}
		pod.Containers = append(pod.Containers, c)
	}
	var returned atomic.Bool
	a := w.a
	go func() {
		err := a.Reserve(w.t.Context(), pod)
		returned.Store(true)
		var wait *device.WaitError
		switch {
		case err == nil:
			w.report(args[0] + " has " + describeClaims(a, args[0]))
		case errors.As(err, &wait):
			w.report(fmt.Sprintf("%s waits for the plugin of %s, at most %v", args[0], wait.Resource, time.Until(wait.Until)))
		default:
			w.report(args[0] + ": " + err.Error())
		}
	}()
	synctest.Wait()
	if !returned.Load() {
		return []string{"(in progress)"}
	}
	return nil
}

// describeClaims returns what a pod holds.
func describeClaims(a *device.Allocator, uid string) string {
	var parts []string
	for _, c := range a.Claims() {
		if c.PodUID == uid {
			parts = append(parts, c.Container+"="+strings.TrimPrefix(c.Resource, "example.com/")+":"+joinIDs(c.Devices))
		}
	}
	if len(parts) == 0 {
		return "no devices"
	}
	return strings.Join(parts, " ")
}

func joinIDs(devices []device.Device) string {
	var ids []string
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
}

func (w *world) start(args []string) []string {
	r, err := w.a.Start(w.t.Context(), args[0], args[1])
	if err != nil {
		return []string{err.Error()}
	}
	w.notes[args[0]+" "+args[1]] = r.Annotations[device.AnnotationDevices]
	var lines []string
	for _, v := range r.EnvVars() {
		lines = append(lines, "env "+v.Name+"="+v.Value)
	}
	for _, m := range r.Mounts {
		lines = append(lines, fmt.Sprintf("mount %s at %s, read-only %v", m.HostPath, m.ContainerPath, m.ReadOnly))
	}
	for _, d := range r.Devices {
		lines = append(lines, "device node "+d.ContainerPath+" "+d.Permissions)
	}
	for _, name := range r.CDIDevices {
		lines = append(lines, "CDI device "+name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Annotations)) {
		lines = append(lines, "annotation "+name+"="+r.Annotations[name])
	}
	return lines
}

func (w *world) release(args []string) []string {
	if err := w.a.Release(args[0]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func (w *world) retain(args []string) []string {
	require.NoError(w.t, w.a.Retain(func(uid string) bool { return slices.Contains(args, uid) }))
	return nil
}

func (w *world) health(args []string) (lines []string) {
	for _, h := range w.a.Health(args[0], args[1]) {
		lines = append(lines, fmt.Sprintf("%s %s is %s", h.Resource, h.ID, h.Health))
	}
	return lines
}

func (w *world) resources([]string) (lines []string) {
	for _, r := range w.a.Resources() {
		line := fmt.Sprintf("%s %d/%d", r.Name, r.Capacity, r.Allocatable)
		if r.Removed {
			line += ", removed"
		}
		lines = append(lines, line)
	}
	return lines
}

func (w *world) claims([]string) (lines []string) {
	for _, c := range w.a.Claims() {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", c.PodUID, c.Container, c.Resource, joinIDs(c.Devices)))
	}
	return lines
}

func (w *world) sockets([]string) (lines []string) {
	for _, s := range w.a.Sockets() {
		lines = append(lines, s.Resource+" "+s.Path)
	}
	return lines
}

func (w *world) restart(args []string) []string {
	w.stop()
	w.stop = nil
	switch {
	case slices.Contains(args, "lost"):
		require.NoError(w.t, os.Remove(w.opts.Record))
	case slices.Contains(args, "damaged"):
		data, err := os.ReadFile(w.opts.Record)
		require.NoError(w.t, err)
		data[len(data)-2] ^= 1
		require.NoError(w.t, os.WriteFile(w.opts.Record, data, 0o600))
	}
	w.open()
	return nil
}

func (w *world) run(args []string) []string {
	w.running = append(w.running, device.RunningContainer{
		PodUID: args[0], Namespace: "default", Name: args[0], Container: args[1], Note: w.notes[args[0]+" "+args[1]],
	})
	return nil
}

func (w *world) wait(args []string) []string {
	d, err := time.ParseDuration(args[0])
	require.NoError(w.t, err)
	time.Sleep(d)
	return nil
}

// scriptedPlugin is a plugin whose answers are set by a script.
type scriptedPlugin struct {
	name      string
	feed      device.Feed
	options   device.PluginOptions
	preferred []string
	response  device.Response
	log       func(string)

	mu     sync.Mutex // guards faults
	faults map[string]string
}

func (p *scriptedPlugin) setFault(call, fault string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[call] = fault
}

// fail returns the fault of a call, after its end if the call hangs.
func (p *scriptedPlugin) fail(ctx context.Context, call string) error {
	p.mu.Lock()
	fault := p.faults[call]
	p.mu.Unlock()
	switch fault {
	case "", "none":
		return nil
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New(fault)
}

func (p *scriptedPlugin) Options() device.PluginOptions { return p.options }

func (p *scriptedPlugin) Preferred(ctx context.Context, open, chosen []string, count int) ([]string, error) {
	p.log(fmt.Sprintf("%s: prefers of %s with %s, count %d?", p.name, strings.Join(open, ","), strings.Join(chosen, ","), count))
	return p.preferred, p.fail(ctx, "preferred")
}

func (p *scriptedPlugin) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	p.log(p.name + ": Allocate " + strings.Join(ids, ","))
	return p.response, p.fail(ctx, "allocate")
}

func (p *scriptedPlugin) PreStart(ctx context.Context, ids []string) error {
	p.log(p.name + ": PreStartContainer " + strings.Join(ids, ","))
	return p.fail(ctx, "prestart")
}
