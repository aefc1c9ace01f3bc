// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package devicetest_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
)

// mutantVariable is the environment variable with the mutant that TestMutant tests.
const mutantVariable = "DEVICETEST_MUTANT"

// mutant is a plugin that violates a rule. Funcs that are set replace its calls.
type mutant struct {
	device.Plugin
	options   func(device.PluginOptions) device.PluginOptions
	preferred func(ctx context.Context, p device.Plugin, open, chosen []string, count int) ([]string, error)
	allocate  func(ctx context.Context, p device.Plugin, ids []string) (device.Response, error)
	preStart  func(ctx context.Context, p device.Plugin, ids []string) error
	feed      func(device.Feed) device.Feed
}

func (m *mutant) Options() device.PluginOptions {
	if m.options != nil {
		return m.options(m.Plugin.Options())
	}
	return m.Plugin.Options()
}

func (m *mutant) Preferred(ctx context.Context, open, chosen []string, count int) ([]string, error) {
	if m.preferred != nil {
		return m.preferred(ctx, m.Plugin, open, chosen, count)
	}
	return m.Plugin.Preferred(ctx, open, chosen, count)
}

func (m *mutant) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	if m.allocate != nil {
		return m.allocate(ctx, m.Plugin, ids)
	}
	return m.Plugin.Allocate(ctx, ids)
}

func (m *mutant) PreStart(ctx context.Context, ids []string) error {
	if m.preStart != nil {
		return m.preStart(ctx, m.Plugin, ids)
	}
	return m.Plugin.PreStart(ctx, ids)
}

// changedFeed is a feed that changes the lists, or ignores Close.
type changedFeed struct {
	device.Feed
	update func(device.Feed, []device.Device) error
	deaf   bool
}

func (f changedFeed) Update(devices []device.Device) error {
	if f.update != nil {
		return f.update(f.Feed, devices)
	}
	return f.Feed.Update(devices)
}

func (f changedFeed) Close() {
	if !f.deaf {
		f.Feed.Close()
	}
}

// changeLists returns a mutant whose feed gets other lists.
func changeLists(update func(device.Feed, []device.Device) error) *mutant {
	return &mutant{feed: func(f device.Feed) device.Feed { return changedFeed{Feed: f, update: update} }}
}

// mutants are plugins that violate one rule each, by the case that detects the violation and words of the rule.
var mutants = map[string]struct {
	test, broken string
	mutant       func() *mutant
}{
	"no options": {"Options", "Options: ", func() *mutant {
		return &mutant{options: func(device.PluginOptions) device.PluginOptions { return device.PluginOptions{} }}
	}},
	"loses NUMA nodes": {"List", "Update: ", func() *mutant {
		return changeLists(func(f device.Feed, list []device.Device) error {
			for i := range list {
				list[i].Nodes = 0
			}
			return f.Update(list)
		})
	}},
	"only the first list": {"Updates", "Update: ", func() *mutant {
		var once sync.Once
		return changeLists(func(f device.Feed, list []device.Device) (err error) {
			once.Do(func() { err = f.Update(list) })
			return err
		})
	}},
	"cuts long lists": {"Large", "Update: ", func() *mutant {
		return changeLists(func(f device.Feed, list []device.Device) error { return f.Update(list[:min(len(list), 1000)]) })
	}},
	"never closes": {"Disconnect", "Close: ", func() *mutant {
		return &mutant{feed: func(f device.Feed) device.Feed { return changedFeed{Feed: f, deaf: true} }}
	}},
	"no preference": {"Preferred", "Preferred: ", func() *mutant {
		return &mutant{preferred: func(ctx context.Context, p device.Plugin, open, chosen []string, count int) ([]string, error) {
			_, err := p.Preferred(ctx, open, chosen, count)
			return nil, err
		}}
	}},
	"swaps open and chosen": {"Preferred", "open has the IDs", func() *mutant {
		return &mutant{preferred: func(ctx context.Context, p device.Plugin, open, chosen []string, count int) ([]string, error) {
			return p.Preferred(ctx, chosen, open, count)
		}}
	}},
	"sorts IDs": {"Allocate", "Allocate: ", func() *mutant {
		return &mutant{allocate: func(ctx context.Context, p device.Plugin, ids []string) (device.Response, error) {
			return p.Allocate(ctx, slices.Sorted(slices.Values(ids)))
		}}
	}},
	"loses CDI names": {"Allocate", "Allocate: ", func() *mutant {
		return &mutant{allocate: func(ctx context.Context, p device.Plugin, ids []string) (device.Response, error) {
			r, err := p.Allocate(ctx, ids)
			r.CDIDevices = nil
			return r, err
		}}
	}},
	"empty is not zero": {"Zero", "zero value", func() *mutant {
		return &mutant{allocate: func(ctx context.Context, p device.Plugin, ids []string) (device.Response, error) {
			r, err := p.Allocate(ctx, ids)
			r.Env = map[string]string{"A": ""}
			return r, err
		}}
	}},
	"no PreStart": {"PreStart", "PreStart: ", func() *mutant {
		return &mutant{preStart: func(context.Context, device.Plugin, []string) error { return nil }}
	}},
	"other error": {"Errors", "word by word", func() *mutant {
		return &mutant{preStart: func(ctx context.Context, p device.Plugin, ids []string) error {
			if p.PreStart(ctx, ids) != nil {
				return errors.New("it failed")
			}
			return nil
		}}
	}},
	"deadline is lost": {"Deadline", "Each call must return", func() *mutant {
		return &mutant{preStart: func(ctx context.Context, p device.Plugin, ids []string) error {
			if err := p.PreStart(ctx, ids); err != nil {
				return errors.New(err.Error())
			}
			return nil
		}}
	}},
	"ignores an ended context": {"Canceled", "Each call must return", func() *mutant {
		return &mutant{allocate: func(ctx context.Context, p device.Plugin, ids []string) (device.Response, error) {
			if ctx.Err() != nil {
				return device.Response{}, nil
			}
			return p.Allocate(ctx, ids)
		}}
	}},
	"one call at a time": {"Concurrent", "Calls are concurrent", func() *mutant {
		busy := make(chan struct{}, 1)
		return &mutant{allocate: func(ctx context.Context, p device.Plugin, ids []string) (device.Response, error) {
			select {
			case busy <- struct{}{}:
				defer func() { <-busy }()
				return p.Allocate(ctx, ids)
			default:
				return device.Response{}, errors.New("another call is in progress")
			}
		}}
	}},
}

// TestMutant runs the suite on one mutant, in its own process.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantVariable)
	if name == "" {
		t.Skip("started by TestSuiteFindsFaults")
	}
	devicetest.TestPlugin(t, func(t *testing.T) devicetest.Subject {
		m := mutants[name].mutant()
		return devicetest.Subject{Connect: func(script *devicetest.Plugin, feed device.Feed) device.Plugin {
			if m.feed != nil {
				feed = m.feed(feed)
			}
			require.NoError(t, script.Attach(feed))
			m.Plugin = script
			return m
		}}
	})
}

func TestSuiteFindsFaults(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a fault is often a wait for an event
			suitetest.FindsFault(t, mutantVariable, name, m.test, m.broken)
		})
	}
}

func TestRulesAreDocumented(t *testing.T) { suitetest.Documented(t, "rule.go", "../*.go", 11) }

// A recorder rejects the lists that a feed must reject, and keeps the previous list.
func TestRecorderRejectsInvalidLists(t *testing.T) {
	var r devicetest.Recorder
	require.NoError(t, r.Update([]device.Device{{ID: "a"}}))
	for want, list := range map[string][]device.Device{
		"no ID":        {{ID: "a"}, {}},
		"listed twice": {{ID: "a"}, {ID: "a"}},
		"bytes":        {{ID: strings.Repeat("x", device.MaxIDLength+1)}},
		"more than":    make([]device.Device, device.MaxDevices+1),
	} {
		require.ErrorContains(t, r.Update(list), want)
	}
	r.Close()
	require.NoError(t, r.Update(nil))
	last, updates := r.Devices()
	assert.Equal(t, []device.Device{{ID: "a"}}, last)
	assert.Equal(t, 1, updates)
}

// Calls and feeds of a disconnected plugin fail.
func TestDisconnectedPlugin(t *testing.T) {
	p := devicetest.NewPlugin(devicetest.Options{Calls: device.PluginOptions{PreStart: true}})
	p.Disconnect()
	require.Error(t, p.Attach(&devicetest.Recorder{}))
	require.Error(t, p.PreStart(t.Context(), nil))
	_, err := p.Preferred(t.Context(), nil, nil, 1)
	require.Error(t, err)
	require.NoError(t, p.SetDevices(device.Device{ID: "a"}))
}
