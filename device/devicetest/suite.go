// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package devicetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/suite"
)

// Times of the suite.
const (
	shortWait = 50 * time.Millisecond // deadline of a call to a hung plugin
	longWait  = 10 * time.Second      // after which an event is missing
)

// Subject connects the plugin that [TestPlugin] tests.
type Subject struct {
	// Connect returns the plugin under test. Its calls must call script, and the device lists of script must reach feed, for example by
	// Plugin.Attach. Connect is called once.
	Connect func(script *Plugin, feed device.Feed) device.Plugin
}

// TestPlugin checks a plugin, and the lists for its feed, against the documentation of [device.Plugin] and [device.Feed]. For each test
// it calls newSubject.
func TestPlugin(t *testing.T, newSubject func(t *testing.T) Subject) {
	t.Helper()
	cases := map[string]func(c *pluginCheck){
		"Options":    (*pluginCheck).checkOptions,
		"List":       (*pluginCheck).checkList,
		"Updates":    (*pluginCheck).checkUpdates,
		"Large":      (*pluginCheck).checkLargeList,
		"Disconnect": (*pluginCheck).checkDisconnect,
		"Preferred":  (*pluginCheck).checkPreferred,
		"Allocate":   (*pluginCheck).checkAllocate,
		"Zero":       (*pluginCheck).checkZeroResponse,
		"PreStart":   (*pluginCheck).checkPreStart,
		"Errors":     (*pluginCheck).checkErrors,
		"Deadline":   (*pluginCheck).checkDeadline,
		"Canceled":   (*pluginCheck).checkCanceled,
		"Concurrent": (*pluginCheck).checkConcurrent,
	}
	for name, check := range cases {
		t.Run(name, func(t *testing.T) {
			check(&pluginCheck{Check: &suite.Check{T: t, Timeout: longWait, Poll: time.Millisecond}, newSubject: newSubject})
		})
	}
}

// pluginCheck is one test of the suite.
type pluginCheck struct {
	*suite.Check
	newSubject func(t *testing.T) Subject
	script     *Plugin
	feed       *Recorder
	plugin     device.Plugin
}

// connectScript creates a scripted plugin with opts and connects it. Without Options.Devices, the plugin has two devices.
func (c *pluginCheck) connectScript(opts Options) {
	if opts.Devices == nil {
		opts.Devices = []device.Device{{ID: "a", Healthy: true, Nodes: 1}, {ID: "b"}}
	}
	c.script, c.feed = NewPlugin(opts), &Recorder{}
	c.plugin = c.newSubject(c.T).Connect(c.script, c.feed)
}

// awaitList waits until the last list of the feed has the devices want, in any order.
func (c *pluginCheck) awaitList(want ...device.Device) {
	c.Helper()
	compare := func(a, b device.Device) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(want, compare)
	c.Until(ruleUpdate, func() (bool, string) {
		got, updates := c.feed.Devices()
		slices.SortFunc(got, compare)
		return updates > 0 && slices.Equal(got, want), fmt.Sprintf("the feed has %.500v after %d lists", got, updates)
	})
}

func (c *pluginCheck) checkOptions() {
	for _, want := range []device.PluginOptions{{}, {PreStart: true}, {Preferred: true}, {PreStart: true, Preferred: true}} {
		c.connectScript(Options{Calls: want})
		c.Hold(c.plugin.Options() == want, ruleOptions, "Options: %+v, not %+v", c.plugin.Options(), want)
	}
}

func (c *pluginCheck) checkList() {
	devices := []device.Device{{ID: "none", Healthy: true}, {ID: "first", Nodes: 1}, {ID: "last", Healthy: true, Nodes: 1 << 63}, {ID: "two", Nodes: 6}}
	c.connectScript(Options{Devices: slices.Clone(devices)})
	c.awaitList(devices...)
}

func (c *pluginCheck) checkUpdates() {
	c.connectScript(Options{})
	c.awaitList(device.Device{ID: "a", Healthy: true, Nodes: 1}, device.Device{ID: "b"})
	steps := []struct {
		change func() error
		want   []device.Device
	}{
		{func() error { return c.script.SetHealth("a", false) }, []device.Device{{ID: "a", Nodes: 1}, {ID: "b"}}},
		{func() error { return c.script.SetDevices(device.Device{ID: "c", Healthy: true}) }, []device.Device{{ID: "c", Healthy: true}}},
		{func() error { return c.script.SetDevices() }, nil},
		{func() error { return c.script.SetDevices(device.Device{ID: "a"}) }, []device.Device{{ID: "a"}}},
	}
	for _, step := range steps {
		c.Succeed(step.change(), ruleUpdate, "Update")
		c.awaitList(step.want...)
	}
	c.Hold(!c.feed.Closed(), ruleClose, "the feed is closed although the plugin is connected")
}

func (c *pluginCheck) checkLargeList() {
	devices := make([]device.Device, 10_000)
	for i := range devices {
		devices[i] = device.Device{ID: fmt.Sprintf("device-%05d-%s", i, strings.Repeat("x", 60)), Healthy: i%3 > 0, Nodes: 1 << (i % 8)}
	}
	c.connectScript(Options{Devices: slices.Clone(devices)})
	c.awaitList(devices...)
}

func (c *pluginCheck) checkDisconnect() {
	c.connectScript(Options{})
	c.awaitList(device.Device{ID: "a", Healthy: true, Nodes: 1}, device.Device{ID: "b"})
	c.script.Disconnect()
	c.Until(ruleClose, func() (bool, string) { return c.feed.Closed(), "the feed is not closed" })
	_, err := c.plugin.Allocate(c.Context(), []string{"a"})
	c.Hold(err != nil, ruleClose, "Allocate succeeds although the feed is closed")
}

// requireCall fails the test unless the last call of the script is want.
func (c *pluginCheck) requireCall(rule, want string) {
	c.Helper()
	calls := c.script.Calls()
	c.Hold(len(calls) > 0 && calls[len(calls)-1] == want, rule, "calls of the plugin: %q, not %q", calls, want)
}

func (c *pluginCheck) checkPreferred() {
	c.connectScript(Options{Calls: device.PluginOptions{Preferred: true}})
	ids, err := c.plugin.Preferred(c.Context(), []string{"a", "b", "c"}, []string{"d"}, 3)
	c.Succeed(err, rulePreferred, "Preferred")
	c.requireCall(ruleOpen, "Preferred 3 of a b c with d")
	c.Hold(slices.Equal(ids, []string{"d", "b", "c"}), rulePreferred, "IDs %q, not those of the plugin", ids)
}

func (c *pluginCheck) checkAllocate() {
	want := device.Response{
		Env:         map[string]string{"GPUS": "a,b", "EMPTY": ""},
		Mounts:      []cri.Mount{{ContainerPath: "/usr/lib/gpu", HostPath: "/opt/gpu", ReadOnly: true}, {ContainerPath: "/run/gpu", HostPath: "/run/gpu"}},
		Devices:     []cri.Device{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu7", Permissions: "mrw"}},
		Annotations: map[string]string{"vendor.example/gpu": "a"},
		CDIDevices:  []string{"vendor.example/gpu=a", "vendor.example/gpu=b"},
	}
	c.connectScript(Options{Respond: func([]string) device.Response { return want }})
	got, err := c.plugin.Allocate(c.Context(), []string{"b", "a"})
	c.Succeed(err, ruleAllocate, "Allocate")
	c.requireCall(ruleAllocate, "Allocate b a")
	c.Hold(reflect.DeepEqual(got, want), ruleAllocate, "response %+v, not %+v", got, want)
}

func (c *pluginCheck) checkZeroResponse() {
	c.connectScript(Options{Respond: func([]string) device.Response { return device.Response{} }})
	got, err := c.plugin.Allocate(c.Context(), []string{"a"})
	c.Succeed(err, ruleAllocate, "Allocate")
	c.Hold(reflect.DeepEqual(got, device.Response{}), ruleZero, "response %+v", got)
}

func (c *pluginCheck) checkPreStart() {
	c.connectScript(Options{Calls: device.PluginOptions{PreStart: true}})
	c.Succeed(c.plugin.PreStart(c.Context(), []string{"a", "b"}), rulePreStart, "PreStart")
	c.requireCall(rulePreStart, "PreStart a b")
}

// forEachCall runs check for each call of the plugin.
func (c *pluginCheck) forEachCall(check func(name string, call func(ctx context.Context) error)) {
	check("Preferred", func(ctx context.Context) error { _, err := c.plugin.Preferred(ctx, []string{"a"}, nil, 1); return err })
	check("Allocate", func(ctx context.Context) error { _, err := c.plugin.Allocate(ctx, []string{"a"}); return err })
	check("PreStart", func(ctx context.Context) error { return c.plugin.PreStart(ctx, []string{"a"}) })
}

// failCalls replaces all calls of the script by fail.
func (c *pluginCheck) failCalls(fail func(context.Context) error) {
	c.script.SetFaults(Faults{
		Preferred: func(ctx context.Context, _, _ []string, _ int, _ func() ([]string, error)) ([]string, error) {
			return nil, fail(ctx)
		},
		Allocate: func(ctx context.Context, _ []string, _ func() (device.Response, error)) (device.Response, error) {
			return device.Response{}, fail(ctx)
		},
		PreStart: func(ctx context.Context, _ []string, _ func() error) error { return fail(ctx) },
	})
}

func (c *pluginCheck) checkErrors() {
	c.connectScript(Options{Calls: device.PluginOptions{Preferred: true, PreStart: true}})
	c.failCalls(func(context.Context) error { return errors.New("no such device: a") })
	c.forEachCall(func(name string, call func(context.Context) error) {
		err := call(c.Context())
		c.Hold(err != nil && strings.Contains(err.Error(), "no such device: a"), ruleErrors, "%s: %v", name, err)
	})
	c.script.SetFaults(Faults{})
	c.forEachCall(func(name string, call func(context.Context) error) {
		c.Succeed(call(c.Context()), ruleErrors, name+" after an error")
	})
}

// awaitReturn fails the test unless call returns an error that wraps want.
func (c *pluginCheck) awaitReturn(name string, want error, call func() error) {
	c.Helper()
	returned := make(chan error, 1)
	go func() { returned <- call() }()
	select {
	case err := <-returned:
		c.Hold(errors.Is(err, want), ruleContext, "%s: %v, which does not wrap %v", name, err, want)
	case <-time.After(longWait):
		c.Hold(false, ruleContext, "%s has not returned %v after its context ended", name, longWait)
	}
}

func (c *pluginCheck) checkDeadline() {
	c.connectScript(Options{Calls: device.PluginOptions{Preferred: true, PreStart: true}})
	c.failCalls(Hang)
	c.forEachCall(func(name string, call func(context.Context) error) {
		ctx, cancel := context.WithTimeout(c.Context(), shortWait)
		defer cancel()
		c.awaitReturn(name, context.DeadlineExceeded, func() error { return call(ctx) })
	})
}

func (c *pluginCheck) checkCanceled() {
	c.connectScript(Options{Calls: device.PluginOptions{Preferred: true, PreStart: true}})
	c.forEachCall(func(name string, call func(context.Context) error) {
		ctx, cancel := context.WithCancel(c.Context())
		c.failCalls(func(ctx context.Context) error { cancel(); return Hang(ctx) })
		c.awaitReturn(name, context.Canceled, func() error { return call(ctx) })
		c.awaitReturn(name+" with an ended context", context.Canceled, func() error { return call(ctx) })
	})
}

// checkConcurrent makes a call while another call hangs.
func (c *pluginCheck) checkConcurrent() {
	c.connectScript(Options{})
	hung := make(chan struct{})
	c.script.SetFaults(Faults{Allocate: func(ctx context.Context, ids []string, next func() (device.Response, error)) (device.Response, error) {
		if ids[0] == "a" {
			close(hung)
			return device.Response{}, Hang(ctx)
		}
		return next()
	}})
	ctx, cancel := context.WithCancel(c.Context())
	returned := make(chan struct{})
	defer func() { cancel(); <-returned }()
	go func() { defer close(returned); _, _ = c.plugin.Allocate(ctx, []string{"a"}) }()
	select {
	case <-hung:
	case <-time.After(longWait):
		c.Hold(false, ruleConcurrent, "the call does not reach the plugin")
	}
	second, stop := context.WithTimeout(c.Context(), longWait)
	defer stop()
	_, err := c.plugin.Allocate(second, []string{"b"})
	c.Succeed(err, ruleConcurrent, "Allocate while another call hangs")
}
